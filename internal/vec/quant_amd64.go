//go:build !purego

package vec

import (
	"unsafe"

	"sparrow/internal/num"
)

// quantArgs are the arguments of the kernel that rotates and quantises n vectors of 128 elements.
type quantArgs struct {
	v, codes, scales unsafe.Pointer
	n                int
	pow2             int // 1 if scales are powers of two
}

// quantCall is the number of vectors that one call processes: about ten microseconds.
const quantCall = 128

var quantisations recycler[quantArgs]

func (s *isa) rotateQuant(codes []byte, scales, v []float32, mode num.ScaleMode) {
	if s.quant == nil {
		rotateQuantGo(codes, scales, v, mode)
		return
	}
	a := quantisations.get()
	defer quantisations.put(a)
	for i := 0; i < len(scales); i += quantCall {
		*a = quantArgs{v: at(v, i*IndexDim), codes: at(codes, i*IndexDim), scales: at(scales, i),
			n: min(quantCall, len(scales)-i)}
		if mode == num.ScalePow2 {
			a.pow2 = 1
		}
		runKernel(s.quant, a)
	}
	*a = quantArgs{}
}
