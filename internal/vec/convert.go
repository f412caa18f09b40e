package vec

import "fmt"

// WidenBF16 writes the bfloat16 numbers of src, two little-endian bytes each,
// to dst. Every bit pattern is exact, NaN payloads included.
func (t *Tier) WidenBF16(dst []float32, src []byte) {
	needLen("WidenBF16", "src", len(src), 2*len(dst))
	if len(dst) > 0 {
		t.ops.widenBF16(dst, src)
	}
}

// WidenE4M3 writes e4m3(src[i])·scale to dst, rounded once. Subnormals are
// exact and the two NaN codes, 0x7F and 0xFF, give NaN.
func (t *Tier) WidenE4M3(dst []float32, src []byte, scale float32) {
	needLen("WidenE4M3", "src", len(src), len(dst))
	if len(dst) > 0 {
		t.ops.widenE4M3(dst, src, scale)
	}
}

// Groups are the scales of a row's groups, in order.
type Groups [8]float32

// WidenE4M3Groups is WidenE4M3 with one scale for each group of size elements. It converts a whole row, because groups
// are short, and one call for each group would take longer than the conversion.
func (t *Tier) WidenE4M3Groups(dst []float32, src []byte, scales Groups, size int) {
	needLen("WidenE4M3Groups", "src", len(src), len(dst))
	if len(dst) > len(scales)*size {
		panic(fmt.Errorf("vec: WidenE4M3Groups: %d elements in groups of %d, want at most %d groups", len(dst), size,
			len(scales)))
	}
	if len(dst) > 0 {
		t.ops.widenGroups(dst, src, scales, size)
	}
}

// NarrowBF16 rounds src to bfloat16, nearest even, as little-endian bytes. NaN
// stays NaN and large values become infinite.
func (t *Tier) NarrowBF16(dst []byte, src []float32) {
	needLen("NarrowBF16", "dst", len(dst), 2*len(src))
	if len(src) > 0 {
		t.ops.narrowBF16(dst, src)
	}
}
