package layout

import (
	"bytes"
	"testing"

	"sparrow/internal/num"
)

// decoded returns the values of the first row of b.
func decoded(l Main, b []byte) []float32 {
	v := make([]float32, RowDim)
	l.Decode(v, b, 0)
	return v
}

func TestRawToBlockKeepsEveryByteValue(t *testing.T) {
	for _, kScale := range []float32{0, 1, 0.25, 8, 0x1p-13, 0x1p-40, 0x1p60} {
		raw, block := FP8Raw{Scale: kScale}, make([]byte, BlockRowBytes)
		for start := 0; start < 256; start += 64 { // so that the 64 rope elements also have every byte
			src := make([]byte, RawRowBytes)
			for i := range src {
				src[i] = byte(i + start)
			}
			RawToBlock(block, src, kScale)
			if i, ok := sameValues(decoded(raw, src), decoded(FP8Block{}, block)); !ok {
				t.Fatalf("k_scale %g: value %d (byte %#x) changed", kScale, i, src[i])
			}
			if !bytes.Equal(block[:512], src[:512]) {
				t.Errorf("k_scale %g: latent bytes changed", kScale)
			}
			if k := kScaleOr1(kScale); (FP8Block{}).Scales(block) != [4]float32{k, k, k, k} {
				t.Errorf("k_scale %g: scales %v", kScale, FP8Block{}.Scales(block))
			}
		}
	}
}

func TestRawToBlockRequantisesForOtherScales(t *testing.T) {
	src, block := make([]byte, RawRowBytes), make([]byte, BlockRowBytes)
	src[0], src[1], src[512] = 0x7E, 0xC1, 0x7E // codes of 448, -2.25, and rope 448
	RawToBlock(block, src, 0.3)
	// 448*.3 = 134.4, divided by 448, is .3, so the scale is .5. 268.8 = 1.05*2^8 is 8.4 steps, rounded to 8, so the
	// value is 256*.5 = 128. -2.25*.3 = -.675, divided by .5, is -1.35, which is 10.8 steps, rounded to 11/8, so the
	// value is -.6875. The rope value is bf16(134.4) = 134.
	got := decoded(FP8Block{}, block)
	if got[0] != 128 || got[1] != -0.6875 || got[512] != 134 {
		t.Errorf("got %g, %g, %g, want 128, -0.6875, 134", got[0], got[1], got[512])
	}
	for j, s := range (FP8Block{}).Scales(block) {
		if want := []float32{0.5, 0x1p-13, 0x1p-13, 0x1p-13}[j]; s != want {
			t.Errorf("scale %d is %g, want %g", j, s, want)
		}
	}
}

// FuzzDecode checks that no layout panics on any bytes and that decoded values satisfy all checks.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, float32(1))
	f.Add(bytes.Repeat([]byte{0xFF}, 2*F32RowBytes), float32(0.3))
	f.Add(bytes.Repeat([]byte{0x7F, 0x80}, BlockRowBytes), nan)
	f.Fuzz(func(t *testing.T, data []byte, kScale float32) {
		row := make([]float32, RowDim)
		for _, l := range []Main{BF16{}, F32{}, FP8Block{}, FP8Raw{Scale: kScale}} {
			tokens := len(data) / l.RowBytes()
			for s := range tokens {
				l.Decode(row, data, s)
			}
		}
		for _, l := range []Index{IndexFP8{}, IndexF32{}} {
			tokens := len(data) / l.TokenBytes()
			for s := range tokens {
				l.Decode(row, data, tokens, s)
			}
		}
		if len(data) >= RawRowBytes && num.IsPow2(kScale) && kScale >= 0x1p-117 && kScale <= 0x1p119 {
			block := make([]byte, BlockRowBytes)
			RawToBlock(block, data, kScale)
			if i, ok := sameValues(decoded(FP8Raw{Scale: kScale}, data), decoded(FP8Block{}, block)); !ok {
				t.Errorf("k_scale %g: value %d changed", kScale, i)
			}
		}
	})
}
