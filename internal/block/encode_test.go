package block

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// randomValues returns cubes of uniform numbers, so that a block has a few large values; one block is all zeros.
func randomValues(n int) []float32 {
	state := uint64(7)
	values := make([]float32, n)
	for i := range values {
		state = state*6364136223846793005 + 1442695040888963407
		values[i] = float32(math.Pow(float64(state>>40)/8388608-1, 3))
	}
	clear(values[256:288])
	return values
}

// The expected hashes were computed from the bytes that llama.cpp's Python package gguf 0.19 writes for the same
// values.
func TestEncodeEqualsGGML(t *testing.T) {
	values := randomValues(64 * 256)
	hashes := map[Format]string{Q4_0: "e318db561f640155", Q5_0: "578e4a799597db36", Q8_0: "18490060ccc41a81"}
	for f, want := range hashes {
		data := make([]byte, len(values)/f.Values()*f.Bytes())
		f.Encode(data, values, nil)
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:8]); got != want {
			t.Errorf("%v: hash %s, want %s", f, got, want)
		}
	}
}

// Decoded values differ from the encoded values by at most the error that the format's number of bits allows, and
// encoding the decoded values again changes little.
func TestEncodedValuesComeBack(t *testing.T) {
	values := randomValues(64 * 256)
	for f, most := range map[Format]float64{Q4_0: 0.082, Q5_0: 0.042, Q8_0: 0.0055, Q4_K: 0.075,
		Q2_K: 0.33, Q5_K: 0.038, Q6_K: 0.018} {
		if !f.CanEncode() {
			t.Errorf("%v has no encoder", f)
			continue
		}
		data := make([]byte, len(values)/f.Values()*f.Bytes())
		got := make([]float32, len(values))
		f.Encode(data, values, nil)
		f.Decode(got, data)
		if e := relative(got, values); !(e < most) {
			t.Errorf("%v: relative error %.4f, want below %.3f", f, e, most)
		}
		for i, v := range got[256:288] {
			if v != 0 {
				t.Fatalf("%v: value %d of a block of zeros became %v", f, i, v)
			}
		}
	}
}

// relative returns the relative L2 error of got.
func relative(got, want []float32) float64 {
	var e, n float64
	for i := range want {
		d := float64(got[i] - want[i])
		e, n = e+d*d, n+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(e / n)
}

// Results of the optimised searches are bitwise equal to those of their plain definitions, including blocks of zeros,
// of equal values, and of tiny or huge values. Blocks with an infinity have no defined result.
func TestSearchesFindWhatPlainOnesDo(t *testing.T) {
	values := randomValues(64 * 256)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for i, v := range []float32{0.5, -0.5, 1e-30, -3e-36, 1e19, 3e38, -3e38, inf, -inf, nan} {
		at := values[1024+64*i:][:64]
		at[i] = v
		if i >= 2 && i < 7 {
			for j := range at {
				at[j] *= v // scale the whole block by v
			}
		}
		if i < 2 {
			for j := range at {
				at[j] = v
			}
		}
	}
	equal := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	for from := 0; from < len(values); from += 256 {
		x := values[from:][:256]
		var search lanes
		scales, leasts := search.affine(x, nil, 15)
		for l := range 8 {
			v := x[32*l:][:32]
			s, m := plainAffine(v, 15)
			if !equal(scales[l], s) || !equal(leasts[l], m) {
				t.Fatalf("values from %d on: scale %v and minimum %v, want %v and %v\n%v", from+32*l, scales[l],
					leasts[l], s, m, v)
			}
		}
		for h := range 2 {
			scales := search.symmetric(x[128*h:][:128], nil)
			for l := range 8 {
				v := x[128*h+16*l:][:16]
				if want := plainSymmetric(v); !equal(scales[l], want) && !math.IsInf(float64(furthest(v)), 0) {
					t.Fatalf("values from %d on: scale %v, want %v\n%v", from+128*h+16*l, scales[l], want, v)
				}
			}
		}
		for _, v := range x {
			if got, want := nearest(v*100, -32, 31), int(plainNearest(v*100, -32, 31)); got != want {
				t.Fatalf("%v is rounded to %d, want %d", v*100, got, want)
			}
		}
		// The assembly gives the same result as plain Go, also with weights that importances have changed.
		for i := range search.weights {
			for l := range search.weights[i] {
				search.weights[i][l] *= float32(1 + (i+l)%3)
			}
		}
		other := search
		for _, f := range [][2]func(*lanes){{affineSums, affineSumsGo}, {affineErrors, affineErrorsGo},
			{symmetricSums, symmetricSumsGo}} {
			f[0](&search)
			f[1](&other)
			if !sameLanes(&search, &other) {
				t.Fatalf("values from %d on: sums of the processor's own kernel differ", from)
			}
		}
	}
}

// sameLanes reports whether all numbers of a and b are equal, where any NaN equals any other NaN.
func sameLanes(a, b *lanes) bool {
	same := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) || a != a && b != b }
	for i := range a.codes {
		for l := range 8 {
			if !same(a.codes[i][l], b.codes[i][l]) {
				return false
			}
		}
	}
	for l := range 8 {
		if !same(a.wq[l], b.wq[l]) || !same(a.wqq[l], b.wqq[l]) || !same(a.wqx[l], b.wqx[l]) || !same(a.e[l], b.e[l]) {
			return false
		}
	}
	return true
}

// plainNearest returns v rounded to the nearest integer in [low, high], halves to even.
func plainNearest(v float32, low, high int) float32 {
	return float32(int(min(max(math.RoundToEven(float64(v)), float64(low)), float64(high))))
}

// plainAffine finds scale and minimum so that scale*q - least approximates x, for q in 0..top and least >= 0. Each
// trial rounds with an initial scale and then fits scale and minimum to the codes by least squares. Large values have
// more weight, because they affect products more.
func plainAffine(x []float32, top int) (scale, least float32) {
	low, high := min(slices.Min(x), 0), slices.Max(x)
	if high == low {
		return 0, -low
	}
	var mean float32
	for _, v := range x {
		mean += v * v
	}
	mean = float32(math.Sqrt(float64(mean / float32(len(x)))))
	best := float32(math.Inf(1))
	for t := range trials {
		// The first scale maps the range of values to top-1 to top+1 codes, depending on the trial.
		first := (float32(top) - 1 + 0.1*float32(t)) / (high - low)
		var w, wq, wqq, wx, wqx float32
		for _, v := range x {
			weight := mean + abs(v)
			q := plainNearest(first*(v-low), 0, top)
			w, wq, wqq, wx, wqx = w+weight, wq+weight*q, wqq+weight*q*q, wx+weight*v, wqx+weight*q*v
		}
		det := w*wqq - wq*wq
		if det <= 0 {
			continue
		}
		s, m := (w*wqx-wq*wx)/det, (wqq*wx-wq*wqx)/det
		if m > 0 { // only minimums below zero can be stored
			s, m = wqx/wqq, 0
		}
		if e := plainError(x, first, low, s, m, mean, top); e < best {
			best, scale, least = e, s, -m
		}
	}
	return scale, least
}

// plainError returns the weighted squared error of the codes that a trial found.
func plainError(x []float32, first, low, s, m, mean float32, top int) (e float32) {
	for _, v := range x {
		d := s*plainNearest(first*(v-low), 0, top) + m - v
		e += (mean + abs(v)) * d * d
	}
	return e
}

// plainSymmetric finds a scale so that scale*q approximates x for q in -32..31.
func plainSymmetric(x []float32) (scale float32) {
	most := furthest(x)
	if most == 0 {
		return 0
	}
	best := float32(-1)
	for t := range trials {
		first := -(31 + 0.1*float32(t)) / most // the furthest value becomes about -32
		var wqx, wqq float32
		for _, v := range x {
			q := plainNearest(first*v, -32, 31)
			wqx, wqq = wqx+v*v*q*v, wqq+v*v*q*q
		}
		if wqq > 0 && wqx*wqx > best*wqq { // the error falls as wqx*wqx/wqq rises
			best, scale = wqx*wqx/wqq, wqx/wqq
		}
	}
	return scale
}

func BenchmarkEncode(b *testing.B) {
	values := randomValues(64 * 256)
	for _, f := range []Format{Q4_K, Q6_K, Q8_0, Q4_0} {
		b.Run(f.String(), func(b *testing.B) {
			data := make([]byte, len(values)/f.Values()*f.Bytes())
			b.SetBytes(int64(4 * len(values)))
			for b.Loop() {
				f.Encode(data, values, nil)
			}
		})
	}
}

// In formats whose values come from a table or a lattice, the error of a block is at most what the number of bits
// allows. This is tested for blocks of one sign, of zeros, and with values that the format cannot represent.
func TestLatticesComeBack(t *testing.T) {
	values := randomValues(12 * 256)
	for i := range values[1024:1536] {
		values[1024+i] = abs(values[1024+i])
	}
	for f, most := range map[Format]float64{Q3_K: 0.15, IQ4_NL: 0.08, IQ4_XS: 0.08, IQ3_S: 0.18, IQ3_XXS: 0.21,
		IQ2_S: 0.32, IQ2_XS: 0.34, IQ2_XXS: 0.39} {
		data := make([]byte, len(values)/f.Values()*f.Bytes())
		got, again := make([]float32, len(values)), make([]float32, len(values))
		f.Encode(data, values, nil)
		f.Decode(got, data)
		if e := relative(got, values); !(e < most) {
			t.Errorf("%v: relative error %.4f, want below %.3f", f, e, most)
		}
		f.Encode(data, got, nil)
		f.Decode(again, data)
		if e := relative(again, got); !(e < most/2) {
			t.Errorf("%v: values that the format holds have a relative error of %.4f, want below %.3f", f, e, most/2)
		}
		for i, v := range got[256:288] {
			if f.Values() == 32 && v != 0 {
				t.Fatalf("%v: value %d of a block of zeros became %v", f, i, v)
			}
		}
		odd := make([]float32, 256)
		odd[3], odd[40], odd[80] = float32(math.Inf(1)), float32(math.NaN()), math.MaxFloat32
		f.Encode(make([]byte, 256/f.Values()*f.Bytes()), odd, nil)
	}
}

// With importances the error of important values falls, in every format whose scales are searched for.
func TestImportantValuesLoseLess(t *testing.T) {
	const cols = 512
	values := randomValues(8 * cols)
	importance := make([]float32, cols)
	for i := range importance {
		if importance[i] = 0.01; i%7 == 0 {
			importance[i] = 10
		}
	}
	for _, f := range []Format{Q2_K, Q3_K, Q4_K, Q5_K, Q6_K, IQ4_NL, IQ4_XS, IQ3_S, IQ3_XXS, IQ2_S, IQ2_XS, IQ2_XXS} {
		lost := func(importance []float32) (e float64) {
			data := make([]byte, len(values)/f.Values()*f.Bytes())
			got := make([]float32, len(values))
			f.Encode(data, values, importance)
			f.Decode(got, data)
			for i := range values {
				if i%cols%7 == 0 {
					e += math.Pow(float64(got[i]-values[i]), 2)
				}
			}
			return e
		}
		if with, without := lost(importance), lost(nil); !(with < 0.97*without) {
			t.Errorf("%v: squared error of important values %.4g, without importances %.4g", f, with, without)
		}
	}
}

// These formats store an even number of negative signs for each eight values. If the values have an odd number, the
// sign of the smallest value is changed.
func TestLatticeSignsAreEven(t *testing.T) {
	src := make([]float32, 256)
	for i := range src {
		src[i] = 1
	}
	src[8], src[9] = -1, 0.01
	for _, f := range []Format{IQ2_XXS, IQ2_XS, IQ3_XXS} {
		data, got := make([]byte, f.Bytes()), make([]float32, 256)
		f.Encode(data, src, nil)
		f.Decode(got, data)
		if got[8] >= 0 || got[9] >= 0 || got[0] <= 0 || got[10] <= 0 {
			t.Errorf("%v: signs of %v", f, got[:16])
		}
	}
}

// Values with the distribution of a model's weights, a standard deviation of 0.02 with a few outliers, are restored
// within the error bound of each format, for any sign and scale. Every format with an encoder has a bound.
func TestWeightsOfModelsComeBack(t *testing.T) {
	bounds := map[Format]float64{Q4_0: 0.1, Q5_0: 0.05, Q8_0: 0.0072, Q2_K: 0.3, Q3_K: 0.165, Q4_K: 0.08, Q5_K: 0.041,
		Q6_K: 0.0225, IQ4_NL: 0.086, IQ4_XS: 0.086, IQ3_S: 0.15, IQ3_XXS: 0.195, IQ2_S: 0.275, IQ2_XS: 0.32,
		IQ2_XXS: 0.37}
	const cols = 512
	r := rand.New(rand.NewPCG(11, 12))
	values, importance := make([]float32, 24*cols), make([]float32, cols)
	for i := range values {
		if values[i] = float32(0.02 * r.NormFloat64()); r.IntN(200) == 0 {
			values[i] *= 4
		}
	}
	for i := range importance {
		importance[i] = float32(math.Exp(r.NormFloat64()))
	}
	for _, f := range Formats() {
		most, ok := bounds[f]
		if f.CanEncode() != ok {
			t.Errorf("%v: an encoder %v, a bound %v", f, f.CanEncode(), ok)
		}
		if !f.CanEncode() || !ok {
			continue
		}
		for _, scale := range []float32{1, -1, 1. / 64, 1 << 10} {
			x, got := slices.Clone(values), make([]float32, len(values))
			for i := range x {
				x[i] *= scale
			}
			var plain []byte
			for _, of := range [][]float32{nil, importance} {
				data := make([]byte, len(x)/f.Values()*f.Bytes())
				f.Encode(data, x, of)
				if of == nil {
					plain = data
				} else if f.Weighs() == bytes.Equal(data, plain) {
					t.Errorf("%v: an importance is used: %v, but it changes the blocks: %v", f, f.Weighs(), !f.Weighs())
				}
				f.Decode(got, data)
				bound := most
				if of != nil {
					bound *= 1.2 // errors of values with small inputs count less, so they grow
				}
				if e := relative(got, x); !(e < bound) {
					t.Errorf("%v times %v: relative error %.4f, want below %.3f (importance %v)", f, scale, e, bound,
						of != nil)
				}
			}
		}
	}
}
