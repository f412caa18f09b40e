package kernel

import "testing"

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
