package kernel

import (
	"encoding/binary"
	"math"
	"testing"
)

// Scales of a block whose exponents differ by at most 14 can be folded; a difference of 15 cannot. Neighbouring blocks
// may differ by any amount.
func TestFold(t *testing.T) {
	matrix := func(rows, cols int, set map[[2]int]byte) Weight {
		scales := make(HostBuffer, rows*cols/32)
		for i := range scales {
			scales[i] = 120
		}
		for at, v := range set {
			scales[at[0]*cols/32+at[1]] = v
		}
		return Weight{Data: Tensor{Buf: make(HostBuffer, rows*cols/2), DType: E2M1x2, Rows: rows, Cols: cols / 2,
			Stride: cols / 2},
			Scale:     Tensor{Buf: scales, DType: E8M0, Rows: rows, Cols: cols / 32, Stride: cols / 32},
			BlockRows: 1, BlockCols: 32}
	}
	for name, c := range map[string]struct {
		set  map[[2]int]byte
		want bool
	}{
		"equal":                    {nil, true},
		"14 apart":                 {map[[2]int]byte{{0, 0}: 113, {127, 3}: 127}, true},
		"15 apart":                 {map[[2]int]byte{{0, 0}: 113, {127, 3}: 128}, false},
		"15 apart in columns":      {map[[2]int]byte{{5, 3}: 113, {5, 4}: 128}, true},
		"15 apart in rows":         {map[[2]int]byte{{127, 0}: 113, {128, 0}: 128}, true},
		"15 apart at the edge":     {map[[2]int]byte{{130, 4}: 113, {140, 5}: 128}, false},
		"zero beside the mean":     {map[[2]int]byte{{9, 1}: 0}, false},
		"NaN":                      {map[[2]int]byte{{9, 1}: 255}, false},
		"the largest and 14 below": {map[[2]int]byte{{9, 1}: 134, {10, 1}: 120}, true},
	} {
		w := ExpertWeights{Gate: []Weight{matrix(144, 192, nil)}, Up: []Weight{matrix(144, 192, nil)},
			Down: []Weight{matrix(144, 192, c.set)}}
		if got := w.Fold(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	repeated := matrix(144, 192, nil)
	for _, c := range []struct {
		last byte
		want bool
	}{{106, true}, {105, false}} {
		repeated.Scale.Buf = Repeated{Pattern: []byte{120, 119, c.last}, Bytes: 144 * 6}
		w := ExpertWeights{Gate: []Weight{repeated}}
		if got := w.Fold(); got != c.want {
			t.Errorf("a pattern of 120, 119 and %d: %v, want %v", c.last, got, c.want)
		}
	}
	plain := ExpertWeights{Gate: []Weight{{Data: Tensor{DType: BF16}}}}
	if plain.Fold() {
		t.Error("a matrix of bf16 folds")
	}
}

// Small blocks of e4m3 merge if their scales are powers of two within 2^6 of each other in each 128 x 128, and if rows
// are quantised with powers of two.
func TestMerges(t *testing.T) {
	matrix := func(set map[[2]int]float32) Weight {
		const rows, cols = 144, 192
		scales := make(HostBuffer, 4*(5*6+1))
		put := func(row, col int, v float32) {
			binary.NativeEndian.PutUint32(scales[4+4*(row*6+col):], math.Float32bits(v))
		}
		for i := range 5 * 6 {
			put(i/6, i%6, 0.25)
		}
		for at, v := range set {
			put(at[0], at[1], v)
		}
		return Weight{Data: Tensor{Buf: make(HostBuffer, rows*cols), DType: E4M3, Rows: rows, Cols: cols, Stride: cols},
			Scale:     Tensor{Buf: scales, DType: F32, Off: 4, Rows: 5, Cols: 6, Stride: 6},
			BlockRows: 32, BlockCols: 32, Pow2Rows: true}
	}
	for name, c := range map[string]struct {
		set  map[[2]int]float32
		want bool
	}{
		"equal":                   {nil, true},
		"2^6 apart":               {map[[2]int]float32{{0, 0}: 1. / 32, {3, 3}: 2}, true},
		"2^7 apart":               {map[[2]int]float32{{0, 0}: 1. / 32, {3, 3}: 4}, false},
		"2^7 apart in columns":    {map[[2]int]float32{{1, 3}: 1. / 32, {1, 4}: 4}, true},
		"2^7 apart in rows":       {map[[2]int]float32{{3, 0}: 1. / 32, {4, 0}: 4}, true},
		"2^7 apart at the edge":   {map[[2]int]float32{{4, 4}: 1. / 32, {4, 5}: 4}, false},
		"zero":                    {map[[2]int]float32{{2, 2}: 0}, false},
		"NaN":                     {map[[2]int]float32{{2, 2}: float32(math.NaN())}, false},
		"a scale between powers":  {map[[2]int]float32{{2, 2}: 0.3}, false},
		"a negative power of two": {map[[2]int]float32{{2, 2}: -0.25}, false},
	} {
		if got := matrix(c.set).Merges(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
	for name, c := range map[string]struct {
		change func(*Weight)
		want   bool
	}{
		"rows of 32 columns":        {func(w *Weight) { w.BlockRows, w.Scale.Rows, w.Scale.Stride = 1, 144, 0 }, true},
		"blocks of 96 rows":         {func(w *Weight) { w.BlockRows = 96 }, false},
		"blocks of 128 x 128":       {func(w *Weight) { w.BlockRows, w.BlockCols = 128, 128 }, false},
		"scales of a whole row":     {func(w *Weight) { w.BlockRows, w.BlockCols = 1, 192 }, false},
		"rows before the matrix":    {func(w *Weight) { w.SkipRows = 16 }, false},
		"rows with any scales":      {func(w *Weight) { w.Pow2Rows = false }, false},
		"bf16 scales":               {func(w *Weight) { w.Scale.DType = BF16 }, false},
		"bf16":                      {func(w *Weight) { w.Data.DType = BF16 }, false},
		"random scales":             {func(w *Weight) { w.Scale.Buf = Drawn{Mean: 0.25, Spread: 0.1} }, false},
		"random codes, equal scale": {func(w *Weight) { w.Scale.Buf = Drawn{Mean: 0.25} }, true},
	} {
		w := matrix(nil)
		c.change(&w)
		if got := w.Merges(); got != c.want {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}
