package num

import (
	"math/rand/v2"
	"testing"
)

func benchBlock() ([]float32, []byte) {
	r := rand.New(rand.NewPCG(5, 6))
	v := make([]float32, 128)
	for i := range v {
		v[i] = float32(r.NormFloat64())
	}
	return v, make([]byte, 128)
}

func BenchmarkQuantLatent(b *testing.B) {
	v, q := benchBlock()
	b.SetBytes(128 * 4)
	for b.Loop() {
		QuantLatent(q, v)
	}
}

func BenchmarkQuantE4M3F32(b *testing.B) {
	v, q := benchBlock()
	b.SetBytes(128 * 4)
	for b.Loop() {
		QuantE4M3(q, v, ScaleF32)
	}
}

func BenchmarkDequantE4M3(b *testing.B) {
	v, q := benchBlock()
	scale := QuantLatent(q, v)
	b.SetBytes(128)
	for b.Loop() {
		DequantE4M3(v, q, scale)
	}
}

func BenchmarkHadamard128(b *testing.B) {
	v, _ := benchBlock()
	b.SetBytes(128 * 4)
	for b.Loop() {
		Hadamard128(v)
	}
}

func BenchmarkRoundBF16(b *testing.B) {
	v, _ := benchBlock()
	b.SetBytes(128 * 4)
	for b.Loop() {
		for i, x := range v {
			v[i] = RoundBF16(x)
		}
	}
}
