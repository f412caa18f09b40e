package cuda

import (
	"math"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
)

// blockMatrix is a weight [Rows, Columns] in one of three forms: e4m3 codes with a scale for each 128 x 128 block, bf16
// values, or values that the kernels represent exactly.
type blockMatrix struct {
	Rows, Columns int
	Codes         []byte
	Scales        []float32 // [ceil(Rows/128), ceil(Columns/128)]
	Values        []uint16  // bf16 values, if Codes is nil
	Exact         []float64 // exact values, if Codes and Values are nil
}

// Row returns one row as the values that the kernels use.
func (m *blockMatrix) Row(r int) []float64 {
	if m.Exact != nil {
		return m.Exact[r*m.Columns:][:m.Columns]
	}
	out := make([]float64, m.Columns)
	for c := range out {
		if m.Values != nil {
			out[c] = float64(num.FromBF16(m.Values[r*m.Columns+c]))
			continue
		}
		scale := m.Scales[r/128*((m.Columns+127)/128)+c/128]
		out[c] = float64(num.FromE4M3(m.Codes[r*m.Columns+c])) * float64(scale)
	}
	return out
}

// expectedExpert returns one expert's result for a row of bf16 values. It quantises or rounds where the kernels do and
// adds in float64; the result is not rounded to bf16.
func expectedExpert(x []float32, gate, up, down *blockMatrix, scaled bool, limit float32,
	mode num.ScaleMode) []float64 {
	if scaled {
		x = expect.Quantised(x, mode)
	}
	inner := make([]float32, gate.Rows)
	for i := range inner {
		inner[i] = float32(expect.Gated(expect.Dot(gate.Row(i), x), expect.Dot(up.Row(i), x), limit))
		if !scaled {
			inner[i] = num.RoundBF16(inner[i])
		}
	}
	if scaled {
		inner = expect.Quantised(inner, mode)
	}
	out := make([]float64, down.Rows)
	for i := range out {
		out[i] = expect.Dot(down.Row(i), inner)
	}
	return out
}

// The matrices of two experts of 16 x 16 are multiples of the identity, so that every column of the result is a
// function of one number.
func TestExpertOfDiagonalMatrices(t *testing.T) {
	diagonal := func(v float32) *blockMatrix {
		m := &blockMatrix{Rows: 16, Columns: 16, Codes: make([]byte, 256), Scales: []float32{0.5}}
		for i := range 16 {
			m.Codes[17*i] = num.E4M3(2 * v)
		}
		return m
	}
	x := make([]float32, 16)
	x[3] = 1
	got := expectedExpert(x, diagonal(2), diagonal(3), diagonal(-1), true, 0, num.ScalePow2)
	want := -2 / (1 + math.Exp(-2)) * 3
	for i, v := range got {
		if (i == 3 && math.Abs(v-want) > 0.07*math.Abs(want)) || (i != 3 && v != 0) {
			t.Errorf("column %d is %g, want %g in column 3 and 0 elsewhere", i, v, want)
		}
	}
}
