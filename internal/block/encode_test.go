package block

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
	"slices"
	"testing"
)

// randomValues are cubes of uniform numbers, so that a block has a few large values; one block is zero.
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

// The hashes are of the bytes that the encoders of llama.cpp's Python package gguf 0.19 write of the same values.
func TestEncodeEqualsGGML(t *testing.T) {
	values := randomValues(64 * 256)
	hashes := map[Format]string{Q4_0: "e318db561f640155", Q5_0: "578e4a799597db36", Q8_0: "18490060ccc41a81"}
	for f, want := range hashes {
		data := make([]byte, len(values)/f.Values()*f.Bytes())
		f.Encode(data, values)
		sum := sha256.Sum256(data)
		if got := hex.EncodeToString(sum[:8]); got != want {
			t.Errorf("%v: hash %s, want %s", f, got, want)
		}
	}
}

// Values come back within the error that the bits of a format allow, and encoding twice changes little.
func TestEncodedValuesComeBack(t *testing.T) {
	values := randomValues(64 * 256)
	for f, most := range map[Format]float64{Q4_0: 0.082, Q5_0: 0.042, Q8_0: 0.0055, Q4_K: 0.075,
		Q6_K: 0.018} {
		if !f.CanEncode() {
			t.Errorf("%v has no encoder", f)
			continue
		}
		data := make([]byte, len(values)/f.Values()*f.Bytes())
		got := make([]float32, len(values))
		f.Encode(data, values)
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

// relative is the root mean square error over the root mean square of the values.
func relative(got, want []float32) float64 {
	var e, n float64
	for i := range want {
		d := float64(got[i] - want[i])
		e, n = e+d*d, n+float64(want[i])*float64(want[i])
	}
	return math.Sqrt(e / n)
}

// The searches find what plain definitions find, to the bit, also of blocks of zeros, of equal values, and of values
// that are tiny or huge. With an infinity there is nothing to find.
func TestSearchesFindWhatPlainOnesDo(t *testing.T) {
	values := randomValues(64 * 256)
	inf, nan := float32(math.Inf(1)), float32(math.NaN())
	for i, v := range []float32{0.5, -0.5, 1e-30, -3e-36, 1e19, 3e38, -3e38, inf, -inf, nan} {
		at := values[1024+64*i:][:64]
		at[i] = v
		if i >= 2 && i < 7 {
			for j := range at {
				at[j] *= v // all of them of that size
			}
		}
		if i < 2 {
			for j := range at {
				at[j] = v
			}
		}
	}
	equal := func(a, b float32) bool { return math.Float32bits(a) == math.Float32bits(b) }
	for from := 0; from < len(values); from += 32 {
		x := values[from:][:32]
		s, m := affine(x, 15)
		wantS, wantM := plainAffine(x, 15)
		if !equal(s, wantS) || !equal(m, wantM) {
			t.Fatalf("values from %d on: scale %v and minimum %v, want %v and %v\n%v", from, s, m, wantS, wantM, x)
		}
		for _, y := range [][]float32{x[:16], x[16:]} {
			if math.IsInf(float64(furthest(y)), 0) {
				symmetric(y)
				continue
			}
			if got, want := symmetric(y), plainSymmetric(y); !equal(got, want) {
				t.Fatalf("values from %d on: scale %v, want %v\n%v", from, got, want, y)
			}
		}
	}
}

// plainAffine finds scale and minimum so that scale*q - least comes near x, for q in 0..top and least >= 0. Each trial
// rounds with a first scale and then fits scale and minimum to the codes by least squares. Large values count more:
// they move products more.
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
		first := (float32(top) - 1 + 0.1*float32(t)) / (high - low) // from top-1 to top+1
		var w, wq, wqq, wx, wqx float32
		for _, v := range x {
			weight := mean + abs(v)
			q := float32(nearest(first*(v-low), 0, top))
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

// plainError is the weighted squared error of the codes that a trial found.
func plainError(x []float32, first, low, s, m, mean float32, top int) (e float32) {
	for _, v := range x {
		d := s*float32(nearest(first*(v-low), 0, top)) + m - v
		e += (mean + abs(v)) * d * d
	}
	return e
}

// plainSymmetric finds a scale so that scale*q comes near x for q in -32..31.
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
			q := float32(nearest(first*v, -32, 31))
			wqx, wqq = wqx+v*v*q*v, wqq+v*v*q*q
		}
		if wqq > 0 && wqx*wqx > best*wqq { // the error falls as this rises
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
				f.Encode(data, values)
			}
		})
	}
}
