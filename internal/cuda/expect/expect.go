// Package expect computes on the host, in plain Go, the results that the CUDA kernels must produce: bytes for writers,
// rows for gathers, scores and selections. Inputs and outputs are slices in host memory; no GPU is used.
//
// The tests of package cuda and the benchmarks compare results with this package. The byte layouts are from package
// layout and the number formats from internal/num; this package implements rotation, normalisation and transforms.
package expect

import (
	"math"

	"sparrow/internal/num"
)

// RotaryDim is the number of rotated values of a vector.
const RotaryDim = 64

// RotaryTable returns the table of cosines and sines [rows, 64] for a base frequency without scaling: 32 cosines, then
// 32 sines.
func RotaryTable(rows int, theta float64) []float32 {
	t := make([]float32, rows*RotaryDim)
	for p := range rows {
		for i := range RotaryDim / 2 {
			angle := float64(float32(p) * float32(math.Pow(theta, -float64(i)/(RotaryDim/2))))
			t[p*RotaryDim+i], t[p*RotaryDim+RotaryDim/2+i] = float32(math.Cos(angle)), float32(math.Sin(angle))
		}
	}
	return t
}

// rotate rotates a pair by an angle. Each product and sum is rounded separately: the conversions prevent fused
// multiply-add.
func rotate(a, b, cos, sin float32) (x, y float32) {
	return float32(a*cos) - float32(b*sin), float32(a*sin) + float32(b*cos)
}

// RotateInterleaved rotates the pairs (2i, 2i+1) of 64 values in place by the angles of one row of the table.
func RotateInterleaved(v, angles []float32) {
	for i := range RotaryDim / 2 {
		v[2*i], v[2*i+1] = rotate(v[2*i], v[2*i+1], angles[i], angles[RotaryDim/2+i])
	}
}

// RotateHalves rotates the pairs (i, i+32) of 64 values in place.
func RotateHalves(v, angles []float32) {
	for i := range RotaryDim / 2 {
		v[i], v[i+RotaryDim/2] = rotate(v[i], v[i+RotaryDim/2], angles[i], angles[RotaryDim/2+i])
	}
}

// Widen converts bf16 values to float32.
func Widen(v []uint16) []float32 {
	out := make([]float32, len(v))
	for i, b := range v {
		out[i] = num.FromBF16(b)
	}
	return out
}

// MainRow returns the 576 values of a main-cache row: the unchanged latent, and the key rotated and rounded to bf16.
func MainRow(latent, key []uint16, angles []float32) []float32 {
	row := append(Widen(latent), Widen(key)...)
	rope := row[len(latent):]
	RotateInterleaved(rope, angles)
	for i, v := range rope {
		rope[i] = num.RoundBF16(v)
	}
	return row
}

// Recipe describes how an indexer vector of 128 values is prepared.
type Recipe struct {
	RopeAt      int // first rotated dimension: 0 or 64
	Interleaved bool
	Hadamard    bool
	Mode        num.ScaleMode
}

// Apply rotates v, rounds it to bf16 and multiplies it by the Hadamard matrix, in place.
func (r Recipe) Apply(v, angles []float32) {
	if r.Interleaved {
		RotateInterleaved(v[r.RopeAt:], angles)
	} else {
		RotateHalves(v[r.RopeAt:], angles)
	}
	if r.Hadamard {
		num.Hadamard128(v)
		return
	}
	for i := range v {
		v[i] = num.RoundBF16(v[i])
	}
}

// LayerNorm normalises v in place with float64 sums and rounds once.
func LayerNorm(v, gamma, beta []float32, epsilon float64) {
	var sum, squares float64
	for _, x := range v {
		sum += float64(x)
	}
	mean := sum / float64(len(v))
	for _, x := range v {
		d := float64(x) - mean
		squares += d * d
	}
	inverse := 1 / math.Sqrt(squares/float64(len(v))+epsilon)
	for i, x := range v {
		scaled := float64((float64(x) - mean) * inverse)
		v[i] = float32(float64(scaled*float64(gamma[i])) + float64(beta[i]))
	}
}
