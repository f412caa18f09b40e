package ref

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
)

// Rows are quantised in groups of 128 columns if the weight is FP8 in blocks of 128 x 128 or in small blocks that
// merge, FP8 with a scale for each row, or MXFP4 whose scales can be folded. Row scales are powers of two if the weight
// requires it. Rows that multiply other weights are not quantised.
func TestRoundedProducts(t *testing.T) {
	const in = 192
	x := floats(1, in)
	for i := range in {
		host.F32(x)[i] = 1 + float32(i)/1024
	}
	host.F32(x)[0], host.F32(x)[128] = 300, 448*3 // each is the largest of its 128 columns
	for _, c := range []struct {
		name string
		dev  Device
		kind kernel.DType
		pow2 bool
		at   int
		want float32
		rows bool // each row of the weight has its own scale
	}{
		{"plain", Device{}, kernel.E4M3, false, 1, 1 + 1./1024, false},
		{"bf16", Device{Rounded: true}, kernel.BF16, false, 1, 1 + 1./1024, false},
		// The scale is 300/448: 1.0009765625 / scale = 1.4948, and the nearest number with 3 mantissa bits is 1.5.
		{"any scale", Device{Rounded: true}, kernel.E4M3, false, 1, float32(1.5) * (float32(300) / 448), false},
		{"a scale for each row", Device{Rounded: true}, kernel.E4M3, true, 1, 1, true},
		{"plain, a scale for each row", Device{}, kernel.E4M3, true, 1, 1 + 1./1024, true},
		{"e2m1 that folds", Device{Rounded: true}, kernel.E2M1x2, true, 1, 1, false},
		{"plain e2m1", Device{}, kernel.E2M1x2, true, 1, 1 + 1./1024, false},
		{"blocks that merge", Device{Rounded: true}, kernel.E4M3, true, 1, 1, false},
		{"plain, blocks that merge", Device{}, kernel.E4M3, true, 1, 1 + 1./1024, false},
		{"small blocks that do not merge", Device{Rounded: true}, kernel.E4M3, false, 1, 1 + 1./1024, false},
		// The scale is 1, so 1.0009765625 becomes 1.
		{"a power of two", Device{Rounded: true}, kernel.E4M3, true, 1, 1, false},
		// The scale is 3, so 1.1259765625 / 3 = 0.3753 becomes 0.375.
		{"the second block", Device{Rounded: true}, kernel.E4M3, false, 129, 1.125, false},
	} {
		w := kernel.Weight{Data: kernel.Tensor{Buf: make(kernel.HostBuffer, in*c.kind.Size()), DType: c.kind, Rows: 1,
			Cols: in, Stride: in}, Pow2Rows: c.pow2}
		raw := []byte(w.Data.Buf.(kernel.HostBuffer))
		switch {
		case c.kind == kernel.BF16:
			raw[2*c.at], raw[2*c.at+1] = 0x80, 0x3F // 1 in bf16
		case c.kind == kernel.E2M1x2:
			raw[c.at/2], w.Data.Cols, w.Data.Stride = 2<<(4*(c.at%2)), in/2, in/2
			w.BlockRows, w.BlockCols = 1, 32
			w.Scale = kernel.Tensor{Buf: kernel.HostBuffer(bytes.Repeat([]byte{127}, in/32)), DType: kernel.E8M0,
				Rows: 1, Cols: in / 32, Stride: in / 32}
		case c.rows:
			raw[c.at], w.BlockRows, w.BlockCols, w.Scale = 0x38, 1, in, floats(1, 1)
			host.F32(w.Scale)[0] = 1
		case strings.Contains(c.name, "merge"):
			raw[c.at], w.BlockRows, w.BlockCols, w.Scale = 0x38, 32, 32, floats(1, in/32)
			for i := range in / 32 {
				host.F32(w.Scale)[i] = 1
			}
		default:
			raw[c.at], w.BlockRows, w.BlockCols, w.Scale = 0x38, 128, 128, floats(1, 2)
			host.F32(w.Scale)[0], host.F32(w.Scale)[1] = 1, 1
		}
		m, err := c.dev.Prepare(w, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		out := floats(1, 1)
		if err := c.dev.Do(kernel.MultiplyArgs{Out: out, X: x, W: m}); err != nil {
			t.Fatal(err)
		}
		if got := host.F32(out)[0]; math.Abs(float64(got-c.want)) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.name, got, c.want)
		}
	}
}

func floats(rows, cols int) kernel.Tensor {
	return kernel.Tensor{Buf: make(kernel.HostBuffer, 4*rows*cols), DType: kernel.F32, Rows: rows, Cols: cols,
		Stride: cols}
}

// Attention weights are rounded relative to the largest score of the first tile. The base changes only when a later
// tile has a score that is more than 2^8 times larger.
func TestRoundedWeights(t *testing.T) {
	d := Device{Rounded: true}
	round := func(p float64) float64 { return float64(num.RoundBF16(float32(p))) }
	ln2 := math.Ln2
	for _, c := range []struct {
		name   string
		scores []float64 // base-2 logarithms of the weights
		tiles  tiles
		want   []float64 // expected weights before division by their sum
	}{
		{"one tile", []float64{0, -1.3, -2.7}, tiles{keys: 4},
			[]float64{1, round(math.Exp2(-1.3)), round(math.Exp2(-2.7))}},
		// The base is still the largest score of the first tile: the weight of 2^0.3 is rounded at its own magnitude.
		{"a later tile that is a little larger", []float64{0, -1.3, 0.3, 0.1}, tiles{keys: 2},
			[]float64{1, round(math.Exp2(-1.3)), round(math.Exp2(0.3)), round(math.Exp2(0.1))}},
		{"from the last tile on", []float64{0.3, 0.1, 0, -1.3}, tiles{keys: 2, fromLast: true},
			[]float64{round(math.Exp2(0.3)), round(math.Exp2(0.1)), 1, round(math.Exp2(-1.3))}},
		// Values that were rounded relative to base 0 are multiplied by 2^-9.5 later.
		{"a later tile that outgrows the base", []float64{0, -1.3, 9.5, 9}, tiles{keys: 2},
			[]float64{math.Exp2(-9.5), round(math.Exp2(-1.3)) * math.Exp2(-9.5), 1, round(math.Exp2(-0.5))}},
	} {
		scores := slices.Clone(c.scores)
		for i := range scores {
			scores[i] *= ln2
		}
		exact := slices.Clone(scores)
		wantMost, wantSum := softmax(exact)
		most, sum := d.weigh(scores, c.tiles)
		if math.Abs(most-wantMost) > 1e-12 || math.Abs(sum-wantSum) > 1e-9*wantSum {
			t.Errorf("%s: largest %v and sum %v, want %v and %v", c.name, most, sum, wantMost, wantSum)
		}
		for i := range scores {
			if got, want := scores[i]/scores[0], c.want[i]/c.want[0]; math.Abs(got-want) > 1e-9*want {
				t.Errorf("%s: weight %d is %v of the first, want %v", c.name, i, got, want)
			}
			if math.Abs(scores[i]-exact[i]) > exact[i]/256 {
				t.Errorf("%s: weight %d is %v, but %v without rounding", c.name, i, scores[i], exact[i])
			}
		}
	}
	plain := []float64{0, -1.3 * ln2}
	exact := slices.Clone(plain)
	softmax(exact)
	if (&Device{}).weigh(plain, tiles{keys: 1}); !slices.Equal(plain, exact) {
		t.Errorf("weights without Rounded are %v, want %v", plain, exact)
	}
}

// With Moved, sums differ from exact sums by about as much as products on a GPU do, and equal sums change equally.
func TestMovedSums(t *testing.T) {
	weight := func(kind kernel.DType) *host.Matrix {
		w := kernel.Weight{Data: kernel.Tensor{Buf: make(kernel.HostBuffer, 256), DType: kind, Rows: 1, Cols: 16,
			Stride: 16}}
		if kind == kernel.E4M3 {
			w.BlockRows, w.BlockCols, w.Scale = 128, 128, floats(1, 1)
		}
		m, err := (&Device{}).Matrix(w, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		return m
	}
	for kind, mean := range map[kernel.DType]float64{kernel.E4M3: 1.0 / (1 << 14), kernel.BF16: 1.0 / (1 << 18)} {
		w, total := weight(kind), 0.0
		d := Device{Rounded: true, Moved: true}
		for i := range 1000 {
			v := 1 + float64(i)/777
			got := d.sum(v, w)
			if got != d.sum(v, w) {
				t.Fatalf("%v: two sums of the same terms differ", kind)
			}
			total += math.Abs(got-v) / v
			if still := (&Device{Rounded: true}).sum(v, w); still != v {
				t.Fatalf("%v became %v without Moved", v, still)
			}
		}
		if got := total / 1000; got < 0.8*mean || got > 1.2*mean {
			t.Errorf("%v: the mean difference of sums is %v, want about %v", kind, got, mean)
		}
	}
}
