package layout

import "fmt"

// HFToKernelRope reorders a 64-element rope part in place from the order of Hugging Face caches, all first members of
// the pairs and then all second members, to the order every layout here stores, pairs side by side:
// kernel[2i] = hf[i], kernel[2i+1] = hf[32+i]. The element type is free: float32, bf16 words, e4m3 bytes.
func HFToKernelRope[T any](rope []T) {
	var hf [RopeDim]T
	copy(hf[:], checkRope(rope))
	for i := range RopeDim / 2 {
		rope[2*i], rope[2*i+1] = hf[i], hf[RopeDim/2+i]
	}
}

// KernelToHFRope undoes HFToKernelRope.
func KernelToHFRope[T any](rope []T) {
	var kernel [RopeDim]T
	copy(kernel[:], checkRope(rope))
	for i := range RopeDim / 2 {
		rope[i], rope[RopeDim/2+i] = kernel[2*i], kernel[2*i+1]
	}
}

func checkRope[T any](rope []T) []T {
	if len(rope) != RopeDim {
		panic(fmt.Sprintf("layout: a rope part has %d elements, got %d", RopeDim, len(rope)))
	}
	return rope
}
