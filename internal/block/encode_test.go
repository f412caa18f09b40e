package block

import (
	"crypto/sha256"
	"encoding/hex"
	"math"
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
