package vec

import "sparrow/internal/num"

// RotateQuant prepares n indexer vectors v [n, 128]: it rotates each vector in place with the Hadamard matrix and
// quantises it to codes [n, 128] e4m3 with one scale per vector, scales [n]. The results are bitwise equal to those of
// [num.Hadamard128] and [num.QuantE4M3].
func (t *Tier) RotateQuant(codes []byte, scales, v []float32, n int, mode num.ScaleMode) {
	const method = "RotateQuant"
	needMatrix(method, "codes", len(codes), n, IndexDim, IndexDim)
	needMatrix(method, "v", len(v), n, IndexDim, IndexDim)
	needMatrix(method, "scales", len(scales), 1, n, n)
	if n > 0 {
		t.ops.rotateQuant(codes, scales[:n], v, mode)
	}
}

func rotateQuantGo(codes []byte, scales, v []float32, mode num.ScaleMode) {
	for i := range scales {
		x := v[i*IndexDim:][:IndexDim]
		num.Hadamard128(x)
		scales[i] = num.QuantE4M3(codes[i*IndexDim:][:IndexDim], x, mode)
	}
}
