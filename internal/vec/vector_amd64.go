//go:build !purego

package vec

import "math"

// vecCall is the number of registers that one call of an element-wise kernel processes: about ten microseconds of the
// slowest kernel.
const vecCall = 1024

// elementwise runs a kernel over dst, a and b, which have equal length; b may be nil. The elements after the last whole
// register are processed in padded copies; fill is the padding of a.
func (s *vectors) elementwise(sc *scratch, kernel func(*vecArgs), dst, a, b []float32, fill float32) {
	v := &sc.vec
	whole := len(a) / s.lanes
	for i := 0; i < whole; i += vecCall {
		from := i * s.lanes
		v.steps = min(vecCall, whole-i)
		v.a = at(a, from)
		if dst != nil {
			v.dst = at(dst, from)
		}
		if b != nil {
			v.b = at(b, from)
		}
		runKernel(kernel, v)
	}
	tail := len(a) % s.lanes
	if tail == 0 {
		return
	}
	from := len(a) - tail
	pad := &sc.pad
	for i := range pad[1] {
		pad[1][i] = fill
	}
	copy(pad[1][:], a[from:])
	if dst != nil {
		copy(pad[0][:], dst[from:])
	}
	if b != nil {
		copy(pad[2][:], b[from:])
	}
	v.steps = 1
	v.dst, v.a, v.b = at(pad[0][:], 0), at(pad[1][:], 0), at(pad[2][:], 0)
	runKernel(kernel, v)
	if dst != nil {
		copy(dst[from:], pad[0][:tail])
	}
}

func (s *vectors) axpy(y []float32, a float32, x []float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	sc.vec.s = a
	s.elementwise(sc, s.kernels.axpy, y, x, nil, 0)
}

func (s *vectors) scaleMul(y, x, w []float32, scale float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	sc.vec.s = scale
	s.elementwise(sc, s.kernels.scaleMul, y, x, w, 0)
}

func (s *vectors) siluMul(dst, gate, up []float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	s.elementwise(sc, s.kernels.siluMul, dst, gate, up, 0)
}

// expSum computes ExpSum. It pads with -Inf, whose exponential adds nothing.
func (s *vectors) expSum(dst, x []float32, max float32) float32 {
	sc := takeScratch()
	defer releaseScratch(sc)
	sc.vec.s = max
	s.elementwise(sc, s.kernels.expSum, dst, x, nil, float32(math.Inf(-1)))
	return s.fold(&sc.vec.acc)
}

// fold returns the sum of the lanes of a register. It adds the upper half to the lower half until one lane is left.
func (s *vectors) fold(acc *[16]float32) float32 {
	for half := s.lanes / 2; half > 0; half /= 2 {
		for i := range half {
			acc[i] += acc[i+half]
		}
	}
	return acc[0]
}

func (s *vectors) max(x []float32) float32 {
	sc := takeScratch()
	defer releaseScratch(sc)
	acc := &sc.vec.acc
	for i := range acc {
		acc[i] = float32(math.Inf(-1))
	}
	s.elementwise(sc, s.kernels.maximum, nil, x, nil, float32(math.Inf(-1)))
	if sc.vec.nan != 0 {
		return float32(math.NaN())
	}
	best := acc[0]
	for _, v := range acc[1:s.lanes] {
		best = max(best, v)
	}
	return best
}

// rotate rotates a few heads in each kernel call, because assembly cannot be preempted.
func (s *vectors) rotate(x []float32, heads, ld int, by *Turn) {
	sc := takeScratch()
	defer releaseScratch(sc)
	kernel := s.kernels.rotatePairs
	if by.halves {
		kernel = s.kernels.rotateHalves
	}
	for h := 0; h < heads; h += vecCall {
		v := &sc.vec
		v.dst, v.a, v.steps, v.stride = at(x, h*ld), at(by.by[:], 0), min(vecCall, heads-h), 4*ld
		runKernel(kernel, v)
	}
}

// softmax computes Softmax in one kernel call, because a block of keys has only a few hundred scores.
func (s *vectors) softmax(p []float32, scale, top float32) (newTop, sum float32) {
	sc := takeScratch()
	defer releaseScratch(sc)
	v := &sc.vec
	v.dst, v.steps, v.s, v.acc[0] = at(p, 0), len(p)/s.lanes, scale, top
	runKernel(s.kernels.softmax, v)
	return v.acc[0], v.acc[1]
}
