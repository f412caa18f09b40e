//go:build !purego

package vec

import "math"

func (s *vectors) widenBF16(dst []float32, src []byte) {
	sc := takeScratch()
	defer releaseScratch(sc)
	s.widenBF16With(sc, dst, src)
}

func (s *vectors) widenE4M3(dst []float32, src []byte, scale float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	sc.scale[0] = scale
	s.widenWith(sc, dst, src, blocks{sc.scale[:], oneBlock})
}

func (s *vectors) widenGroups(dst []float32, src []byte, scales Groups, size int) {
	sc := takeScratch()
	defer releaseScratch(sc)
	sc.groups = scales
	if size%s.lanes == 0 && blockCall%size == 0 {
		s.widenWith(sc, dst, src, blocks{sc.groups[:], size})
		return
	}
	for i, at := 0, 0; at < len(dst); i, at = i+1, at+size {
		to := min(at+size, len(dst))
		s.widenWith(sc, dst[at:to], src[at:to], blocks{sc.groups[i:], oneBlock})
	}
}

// blocks are the scales of a row of codes: s[i] is the scale of the elements from size*i on. size is whole registers
// and divides blockCall.
type blocks struct {
	s    []float32
	size int
}

// oneBlock is the size of blocks for rows with one scale.
const oneBlock = 1 << 30

func (s *vectors) narrowBF16(dst []byte, src []float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	v := &sc.vec
	whole := len(src) / s.lanes
	for i := 0; i < whole; i += vecCall {
		v.steps = min(vecCall, whole-i)
		v.dst, v.a = at(dst, 2*i*s.lanes), at(src, i*s.lanes)
		runKernel(s.kernels.narrowBF16, v)
	}
	done := whole * s.lanes
	narrowBF16Go(dst[2*done:], src[done:])
}

// widenBF16With converts whole registers with the kernel and the remaining elements in Go; both are exact.
func (s *vectors) widenBF16With(sc *scratch, dst []float32, src []byte) {
	done := s.widenWhole(sc, s.kernels.widenBF16, dst, src, 2)
	widenBF16Go(dst[done:], src[2*done:])
}

// widenWith widens e4m3 codes. Kernel and Go both round the product with the scale once. The kernel reads NaN codes as
// numbers and reports that it has read some.
func (s *vectors) widenWith(sc *scratch, dst []float32, src []byte, b blocks) {
	v := &sc.vec
	whole := len(dst) / s.lanes * s.lanes
	for from := 0; from < whole; from += blockCall {
		to := min(from+blockCall, whole)
		v.s, v.steps, v.each = 256, (to-from)/s.lanes, b.size/s.lanes
		v.dst, v.a, v.b = at(dst, from), at(src, from), at(b.s, from/b.size)
		runKernel(s.kernels.widenE4M3, v)
		if sawNaN(&v.codes) {
			restoreNaN(dst[from:to], src[from:to])
		}
	}
	for i := whole; i < len(dst); i++ {
		dst[i] = e4m3[src[i]] * b.s[i/b.size]
	}
}

// blockCall is the number of elements that one call of a kernel with a scale per block processes: whole blocks, a few
// microseconds.
const blockCall = 64 * scaleBlock

// scaleExact writes x times a power of two for each block, times the 2^8 that the e4m3 decoder leaves out. It reports
// whether every product is exact. len(x) is a number of whole registers.
func (s *vectors) scaleExact(sc *scratch, dst, x []float32, b blocks) bool {
	v := &sc.vec
	for from := 0; from < len(x); from += blockCall {
		to := min(from+blockCall, len(x))
		v.s, v.steps, v.each = 256, (to-from)/s.lanes, b.size/s.lanes
		v.dst, v.a, v.b = at(dst, from), at(x, from), at(b.s, from/b.size)
		runKernel(s.kernels.scaleExact, v)
		if v.nan != 0 {
			v.nan = 0
			return false
		}
	}
	return true
}

// sawNaN reports whether one of the codes, four to a word and without their signs, is NaN: adding one carries into the
// sign bit only for that code.
func sawNaN(codes *[16]uint32) bool {
	var carry uint32
	for _, c := range codes {
		carry |= c + 0x01010101
	}
	return carry&0x80808080 != 0
}

// isNaN reports whether an e4m3 code is NaN.
func isNaN(code byte) bool { return code&0x7F == 0x7F }

// restoreNaN writes NaN to dst for each NaN code in src.
func restoreNaN(dst []float32, src []byte) {
	for i, c := range src {
		if isNaN(c) {
			dst[i] = float32(math.NaN())
		}
	}
}

// widenWhole converts the elements of src that fill whole registers, of size bytes each, and returns their number.
func (s *vectors) widenWhole(sc *scratch, kernel func(*vecArgs), dst []float32, src []byte, size int) int {
	v := &sc.vec
	whole := len(dst) / s.lanes
	for i := 0; i < whole; i += vecCall {
		v.steps = min(vecCall, whole-i)
		v.dst, v.a = at(dst, i*s.lanes), at(src, i*s.lanes*size)
		runKernel(kernel, v)
	}
	return whole * s.lanes
}
