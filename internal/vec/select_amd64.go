//go:build !purego

package vec

import "unsafe"

// selectArgs are the arguments of kernels that compare numbers with a floor.
type selectArgs struct {
	x, at, kept, places unsafe.Pointer
	steps               int
	n                   int // output: number of elements found
	base                int32
	floor               float32
}

// selectCall is the number of registers that one call processes: a few tens of microseconds from memory.
const selectCall = 4096

var selections recycler[selectArgs]

func (s *isa) countAbove(x []float32, floor float32) int {
	a := selections.get()
	defer selections.put(a)
	total, whole := 0, len(x)/s.vec.lanes
	for i := 0; i < whole; i += selectCall {
		*a = selectArgs{x: at(x, i*s.vec.lanes), steps: min(selectCall, whole-i), floor: floor}
		runKernel(s.selects.count, a)
		total += a.n
	}
	a.x = nil
	return total + countAboveGo(x[whole*s.vec.lanes:], floor)
}

func (s *isa) collect(to []int32, kept []float32, x []float32, places []int32, base int32, floor float32) int {
	if s.selects.counted == nil {
		return collectGo(to, kept, x, places, base, floor)
	}
	a := selections.get()
	defer selections.put(a)
	n, whole := 0, len(x)/s.vec.lanes
	for i := 0; i < whole; i += selectCall {
		from := i * s.vec.lanes
		*a = selectArgs{x: at(x, from), at: at(to, n), kept: at(kept, n), steps: min(selectCall, whole-i),
			base: base + int32(from), floor: floor}
		kernel := s.selects.counted
		if places != nil {
			a.places, kernel = at(places, from), s.selects.placed
		}
		runKernel(kernel, a)
		n += a.n
	}
	*a = selectArgs{}
	rest := whole * s.vec.lanes
	if places != nil {
		places = places[rest:]
	}
	return n + collectGo(to[n:], kept[n:], x[rest:], places, base+int32(rest), floor)
}
