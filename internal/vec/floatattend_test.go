package vec

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"
)

// eachFloat runs a test under every tier with attention in float32, for both widths of rows.
func eachFloat(t *testing.T, run func(t *testing.T, a *FloatAttend)) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, width := range []int{LatentRow, LatentDim} {
			if a := NewFloatAttend(tier, width); a != nil {
				run(t, a)
			}
		}
	})
}

// floatResult attends with query row 0 over rows from the beginning of memory on.
func floatResult(a *FloatAttend, memory []byte, n, heads int, format RowFormat) []float32 {
	places := make([]int, n)
	for i := range places {
		places[i] = i * rowSize(format, a.width)
	}
	a.Attend(0, memory, places, nil, format)
	all := make([]float32, heads*(LatentDim+2))
	a.Result(all[2*heads:], all[:heads], all[heads:2*heads])
	return all
}

// Rows of every format give the same bits as the same rows in float32.
func TestFloatAttendFormatsAgree(t *testing.T) {
	eachFloat(t, func(t *testing.T, a *FloatAttend) {
		const heads, n = 5, 150
		r := newRand(3)
		a.Query(0, normals(r, heads*a.width), heads, 0.01)
		for format := range rowFormats {
			var memory, wide []byte
			rows, values := latentRows(r, n, format)
			for i, v := range values {
				row := rows[i*rowBytes[format]:][:rowBytes[format]]
				if format == RowBlock && i%3 == 0 { // a scale that is not a power of two
					binary.LittleEndian.PutUint32(row[516:], math.Float32bits(1.0/3))
					for c := 128; c < 256; c++ {
						v[c] = float64(e4m3[row[c]] * float32(1.0/3))
					}
				}
				memory = append(memory, row[:rowSize(format, a.width)]...)
				for _, x := range v[:a.width] {
					wide = binary.LittleEndian.AppendUint32(wide, math.Float32bits(float32(x)))
				}
			}
			for _, count := range []int{1, 63, 64, 65, n} {
				got, want := floatResult(a, memory, count, heads, format), floatResult(a, wide, count, heads, RowF32)
				if !slices.Equal(got, want) {
					t.Errorf("width %d, format %d, %d rows: the result differs from that of float32", a.width, format,
						count)
				}
			}
		}
	})
}

// Scores are sums of sums of 64 products: one sum of 576 would have nearly three times the error, which changes the
// tokens of exact checkpoints.
func TestFloatAttendScoresRoundLittle(t *testing.T) {
	eachFloat(t, func(t *testing.T, a *FloatAttend) {
		const heads, rows = 16, 300
		r := newRand(5)
		q, square := normals(r, heads*a.width), 0.0
		a.Query(0, q, heads, 1)
		for range rows {
			row, memory := normals(r, a.width), []byte(nil)
			for _, v := range row {
				memory = binary.LittleEndian.AppendUint32(memory, math.Float32bits(v))
			}
			for h, score := range floatResult(a, memory, 1, heads, RowF32)[:heads] {
				exact := 0.0
				for i, v := range row {
					exact += float64(v) * float64(q[h*a.width+i])
				}
				square += (float64(score) - exact) * (float64(score) - exact)
			}
		}
		if rms := math.Sqrt(square / (heads * rows)); rms > 5e-6 {
			t.Errorf("width %d: the rms error of scores is %.3g, want at most 5e-6", a.width, rms)
		}
	})
}

// A NaN code makes every head NaN; the next call does not see it.
func TestFloatAttendNaNCodes(t *testing.T) {
	eachFloat(t, func(t *testing.T, a *FloatAttend) {
		const heads, n = 17, 70
		r := newRand(10)
		a.Query(0, normals(r, heads*a.width), heads, 0.01)
		for _, format := range []RowFormat{RowRaw, RowBlock} {
			size := rowSize(format, a.width)
			for _, at := range []int{0, 31, 100, 511} {
				var memory []byte
				rows, _ := latentRows(r, n, format)
				for i := range n {
					memory = append(memory, rows[i*rowBytes[format]:][:size]...)
				}
				clean := floatResult(a, memory, n, heads, format)
				was := memory[69*size+at]
				memory[69*size+at] = 0xFF
				for h, sum := range floatResult(a, memory, n, heads, format)[heads : 2*heads] {
					if sum == sum {
						t.Fatalf("format %d, NaN at %d: head %d has the sum %v", format, at, h, sum)
					}
				}
				memory[69*size+at] = was
				wantSame(t, "without NaN", floatResult(a, memory, n, heads, format), clean)
			}
		}
	})
}

// Rows whose scores are all -Inf have no weight, and rows after them count alone.
func TestFloatAttendMaskedScores(t *testing.T) {
	eachFloat(t, func(t *testing.T, a *FloatAttend) {
		const n = 130
		q, memory := make([]float32, a.width), make([]byte, n*4*a.width)
		q[3] = 1
		put := func(row int, v float32) {
			binary.LittleEndian.PutUint32(memory[4*(row*a.width+3):], math.Float32bits(v))
		}
		for i := range n {
			put(i, float32(math.Inf(-1)))
		}
		a.Query(0, q, 1, 1)
		if got := floatResult(a, memory, n, 1, RowF32); !math.IsInf(float64(got[0]), -1) || got[1] != 0 {
			t.Errorf("width %d: top %v, sum %v, want -Inf and 0", a.width, got[0], got[1])
		}
		put(128, 2)
		if got := floatResult(a, memory, n, 1, RowF32); got[0] != 2 || got[1] != 1 {
			t.Errorf("width %d: top %v, sum %v, want 2 and 1", a.width, got[0], got[1])
		}
	})
}
