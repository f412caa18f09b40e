package expect

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"sparrow/internal/num"
)

func TestRotationKeepsLengthAndReturns(t *testing.T) {
	table := RotaryTable(50, 10000)
	v := make([]float32, 64)
	for i := range v {
		v[i] = float32(i) - 20.5
	}
	for name, turn := range map[string]func(v, angles []float32){"interleaved": RotateInterleaved,
		"halves": RotateHalves} {
		w := slices.Clone(v)
		turn(w, table[37*64:38*64])
		back := slices.Clone(table[37*64 : 38*64])
		for i := 32; i < 64; i++ {
			back[i] = -back[i]
		}
		if w[0] == v[0] {
			t.Errorf("%s: nothing turned", name)
		}
		turn(w, back)
		for i := range v {
			if math.Abs(float64(w[i]-v[i])) > 1e-4 {
				t.Errorf("%s: value %d came back as %g, want %g", name, i, w[i], v[i])
			}
		}
	}
	if table[64] != float32(math.Cos(1)) || table[64+32] != float32(math.Sin(1)) {
		t.Error("position 1 does not turn its first pair by one radian")
	}
}

func TestLayerNormHasMeanBetaAndSpreadGamma(t *testing.T) {
	v, gamma, beta := make([]float32, 128), make([]float32, 128), make([]float32, 128)
	for i := range v {
		v[i], gamma[i], beta[i] = float32(i*i%37), 2, 3
	}
	LayerNorm(v, gamma, beta, 1e-6)
	var sum, squares float64
	for _, x := range v {
		sum += float64(x)
		squares += (float64(x) - 3) * (float64(x) - 3)
	}
	if mean, spread := sum/128, squares/128; math.Abs(mean-3) > 1e-5 || math.Abs(spread-4) > 1e-4 {
		t.Errorf("mean %g variance %g, want 3 and 4", mean, spread)
	}
}

func TestV4EntryMatchesTheWorkedExample(t *testing.T) {
	page := make([]byte, 2*(v4DataBytes+v4ScaleBytes))
	v := make([]float32, 512)
	copy(v, []float32{1, -2.5, 0.3, 100, 0.001})
	v[511] = -7
	EncodeV4(page, 2, 1, v)
	if got, want := fmt.Sprintf("% X", page[576:582]), "48 D2 3A 7C 02 00"; got != want {
		t.Errorf("codes %s, want %s", got, want)
	}
	if got := page[2*576+8]; got != 125 {
		t.Errorf("scale byte %d, want 125", got)
	}
	// For a group of zeros, 1e-4/448 = 2.2e-7 is above 2^-23, so the scale is 2^-22 and its byte is 105.
	if got := page[2*576+9]; got != 105 {
		t.Errorf("scale byte of a zero group %d, want 105", got)
	}
	row := DecodeV4(page, 2, 1)
	for i, want := range map[int]float32{0: 1, 1: -2.5, 2: 0.3125, 3: 96, 4: 0.0009765625, 5: 0, 511: -7} {
		if got := num.FromBF16(uint16(row[2*i]) | uint16(row[2*i+1])<<8); got != want {
			t.Errorf("value %d is %g, want %g", i, got, want)
		}
	}
}

func TestCombineShiftsExtraAndKeepsNegatives(t *testing.T) {
	got := Combine([]int32{4, -1, 9}, []int32{0, -1, 3}, 100, 8)
	if want := []int32{4, -1, 9, 100, -1, 103, -1, -1}; !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestIndexScoreWeighsPositiveProducts(t *testing.T) {
	q, key := make([]byte, 2*IndexDim), make([]byte, IndexDim)
	q[0], q[IndexDim], key[0] = num.E4M3(2), num.E4M3(-3), num.E4M3(4) // products 8 and -12; ReLU makes -12 0
	if score, size := IndexScore(q, key, []float32{0.5, -7}, 0.25); score != 1 || size != (4+84)*0.25 {
		t.Errorf("score %g size %g, want 1 and 22", score, size)
	}
}

func TestTopKPrefersLowPositionsAndSkipsNaN(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(-1))
	for _, c := range []struct {
		name   string
		scores []float32
		k      int
		want   []int32
	}{
		{"ties at the cut", []float32{1, 3, 1, 3, 1}, 3, []int32{0, 1, 3}},
		{"short rows are whole", []float32{nan, inf}, 2, []int32{0, 1}},
		{"NaN and -inf are left out", []float32{nan, 5, inf, -2}, 3, []int32{1, 3}},
		{"empty", nil, 3, []int32{}},
	} {
		if got := TopK(c.scores, c.k); !slices.Equal(got, c.want) {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}

func TestPairsAreSortedByExpertAndNothingElse(t *testing.T) {
	if got := SortPairs([]int32{2, 0, -1, 2, 5, 0}, 5); !slices.Equal(got, []int32{1, 5, 0, 3}) {
		t.Errorf("got %v, want 1 5 of expert 0, then 0 3 of expert 2", got)
	}
}

func TestCandidatesOfRowsWorkedOutByHand(t *testing.T) {
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for _, c := range []struct {
		row  []float32
		ids  []int32
		sum  float64
		name string
	}{
		{[]float32{1, 2, 2, 0}, []int32{1, 2, 0}, math.Log(2*math.Exp(2) + math.E + 1), "ties"},
		{[]float32{nan, -inf, 3}, []int32{2, 0, 1}, math.NaN(), "NaN is minus infinity among the best"},
		{[]float32{0, inf, 1}, []int32{1, 2, 0}, math.Inf(1), "an infinite best"},
	} {
		ids, sum := Candidates(c.row, 3)
		same := sum == c.sum || math.Abs(sum-c.sum) < 1e-12 || (math.IsNaN(sum) && math.IsNaN(c.sum))
		if !slices.Equal(ids, c.ids) || !same {
			t.Errorf("%s: %v and %g, want %v and %g", c.name, ids, sum, c.ids, c.sum)
		}
	}
}
