package layout

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"sparrow/internal/num"
)

// decoded is the values of the first row of b.
func decoded(l Main, b []byte) []float32 {
	v := make([]float32, RowDim)
	l.Decode(v, b, 0)
	return v
}

func TestRawToBlockKeepsEveryByteValue(t *testing.T) {
	for _, kScale := range []float32{0, 1, 0.25, 8, 0x1p-13, 0x1p-40, 0x1p60} {
		raw, block := FP8Raw{Scale: kScale}, make([]byte, BlockRowBytes)
		for start := 0; start < 256; start += 64 { // so that the 64 rope places see every byte too
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
			if k := raw.KScale(); (FP8Block{}).Scales(block) != [4]float32{k, k, k, k} {
				t.Errorf("k_scale %g: scales %v", kScale, FP8Block{}.Scales(block))
			}
		}
	}
}

func TestRawToBlockRequantisesForOtherScales(t *testing.T) {
	src, block := make([]byte, RawRowBytes), make([]byte, BlockRowBytes)
	src[0], src[1], src[512] = 0x7E, 0xC1, 0x7E // 448, -2.25, rope 448
	RawToBlock(block, src, 0.3)
	// 448*.3 = 134.4, over 448 is .3, so the scale is .5; 268.8 = 1.05*2^8: 8.4 steps -> 8 -> 256*.5 = 128.
	// -2.25*.3 = -.675, over .5 = -1.35: 10.8 steps -> 11/8 -> -.6875. Rope: bf16(134.4) = 134.
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

func TestBlockToRawIsRefusedUnlessLossIsAllowed(t *testing.T) {
	block, raw := make([]byte, BlockRowBytes), make([]byte, RawRowBytes)
	FP8Block{}.Encode(block, 0, handRow())
	err := BlockToRaw(raw, block, 1, false)
	if !errors.Is(err, ErrLossy) || !strings.Contains(err.Error(), "fp8-656") || !strings.Contains(err.Error(), "fp8-576") {
		t.Errorf("got %v, want ErrLossy naming both layouts", err)
	}
	if !bytes.Equal(raw, make([]byte, RawRowBytes)) {
		t.Error("a refused conversion wrote bytes")
	}
	if err := BlockToRaw(raw, block, 1, true); err != nil {
		t.Fatal(err)
	}
	// 1 stays 1; .0013 had become 11*2^-13 = .69*2^-9 and rounds to 2^-9; -1024 is clipped; rope 63 -3.140625 -> -3.25.
	got := decoded(FP8Raw{}, raw)
	for i, want := range map[int]float32{0: 1, 2: 0x1p-9, 128: 448, 384: -448, 513: 0.5, 575: -3.25} {
		if got[i] != want {
			t.Errorf("value %d: got %g, want %g", i, got[i], want)
		}
	}
	for _, k := range []float32{-1, nan, float32(math.Inf(1))} {
		if err := BlockToRaw(raw, block, k, true); !errors.Is(err, ErrScale) {
			t.Errorf("k_scale %g: %v", k, err)
		}
	}
}

// TestBlockToBF16AndBackKeepsValues draws rows, stores them and sends the stored row through bf16 and back.
func TestBlockToBF16AndBackKeepsValues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		r := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 0))
		spread := rapid.IntRange(0, 30).Draw(t, "spread")
		v := make([]float32, RowDim)
		for i := range v {
			v[i] = float32(r.NormFloat64() * math.Ldexp(1, r.IntN(2*spread+1)-spread))
		}
		block, wide, back := make([]byte, BlockRowBytes), make([]byte, BF16RowBytes), make([]byte, BlockRowBytes)
		FP8Block{}.Encode(block, 0, v)
		BlockToBF16(wide, block)
		if i, ok := sameValues(decoded(FP8Block{}, block), decoded(BF16{}, wide)); !ok {
			t.Fatalf("to bf16: value %d changed", i)
		}
		BF16ToBlock(back, wide)
		if i, ok := sameValues(decoded(FP8Block{}, block), decoded(FP8Block{}, back)); !ok {
			t.Fatalf("back from bf16: value %d changed", i)
		}
		if !bytes.Equal(block[BlockRopeOffset:], back[BlockRopeOffset:]) {
			t.Fatal("rope bytes changed")
		}
	})
}

func TestBackFromBF16ATileMayHalveItsScale(t *testing.T) {
	// 230/448 = .513 -> scale 1. 230 = 1.797*2^7: 14.4 steps, down to 14 -> 224, code 0x76. Read back, 224/448 = .5 exactly:
	// the scale is now .5 and the code 448's, 0x7E. The value is the same, the bytes are not.
	v := make([]float32, RowDim)
	v[0] = 230
	block, wide, back := make([]byte, BlockRowBytes), make([]byte, BF16RowBytes), make([]byte, BlockRowBytes)
	FP8Block{}.Encode(block, 0, v)
	BlockToBF16(wide, block)
	BF16ToBlock(back, wide)
	if block[0] != 0x76 || (FP8Block{}).Scales(block)[0] != 1 || back[0] != 0x7E || (FP8Block{}).Scales(back)[0] != 0.5 {
		t.Errorf("codes %#x, %#x, scales %v, %v", block[0], back[0], FP8Block{}.Scales(block), FP8Block{}.Scales(back))
	}
}

func TestRopeBytesTravelVerbatim(t *testing.T) {
	wide, block, back := make([]byte, BF16RowBytes), make([]byte, BlockRowBytes), make([]byte, BF16RowBytes)
	for i := range RopeDim * 2 {
		wide[BF16RopeOffset+i] = byte(i * 2)
	}
	copy(wide[BF16RopeOffset:], []byte{0x81, 0x7F, 0x81, 0xFF}) // signalling NaN, which arithmetic would make quiet
	BF16ToBlock(block, wide)
	BlockToBF16(back, block)
	if !bytes.Equal(back[BF16RopeOffset:], wide[BF16RopeOffset:]) {
		t.Error("rope bytes changed on the way")
	}
}

func TestBF16AndRaw(t *testing.T) {
	wide, raw, back := make([]byte, BF16RowBytes), make([]byte, RawRowBytes), make([]byte, BF16RowBytes)
	BF16{}.Encode(wide, 0, handRow())
	BF16ToRaw(raw, wide, 0)
	want := make([]byte, RawRowBytes)
	FP8Raw{}.Encode(want, 0, decoded(BF16{}, wide))
	if !bytes.Equal(raw, want) {
		t.Error("BF16ToRaw differs from encoding the row's values")
	}
	RawToBF16(back, raw, 2)
	a, b := decoded(FP8Raw{}, raw), decoded(BF16{}, back)
	for i := range a {
		if b[i] != 2*a[i] {
			t.Fatalf("value %d: %g stored, %g widened with k_scale 2", i, a[i], b[i])
		}
	}
}

func TestConvertByPair(t *testing.T) {
	const tokens = 3
	all := mains()
	// What each pair costs; pairs not named are lossy.
	loss := map[[2]string]Loss{{"block", "bf16"}: ByScale}
	for name := range all {
		loss[[2]string{name, name}] = Exact
		loss[[2]string{name, "f32"}] = Exact
	}
	for _, to := range []string{"bf16", "block"} {
		loss[[2]string{"raw", to}] = Exact
		loss[[2]string{"raw scale 1/4", to}] = Exact
	}
	for fromName, from := range all {
		src := Rows{from, make([]byte, from.PageBytes(tokens))}
		r := rand.New(rand.NewPCG(11, 12))
		for s := range tokens {
			from.Encode(src.Bytes, s, randomRow(r))
		}
		for toName, to := range all {
			t.Run(fromName+" to "+toName, func(t *testing.T) {
				want, named := loss[[2]string{fromName, toName}]
				if !named {
					want = Lossy
				}
				if got := LossOf(from, to); got != want {
					t.Fatalf("loss is %v, want %v", got, want)
				}
				dst := Rows{to, make([]byte, to.PageBytes(tokens))}
				err := Convert(dst, src, false)
				if want == Lossy {
					if !errors.Is(err, ErrLossy) {
						t.Fatalf("not refused: %v", err)
					}
					err = Convert(dst, src, true)
				}
				if err != nil {
					t.Fatal(err)
				}
				checkConverted(t, dst, src, want)
			})
		}
	}
}

// checkConverted compares every row: equal values, or for a lossy pair the values that encoding the source's gives.
func checkConverted(t *testing.T, dst, src Rows, loss Loss) {
	t.Helper()
	a, b := make([]float32, RowDim), make([]float32, RowDim)
	expected := make([]byte, dst.Layout.RowBytes())
	for s := range len(src.Bytes) / src.Layout.RowBytes() {
		src.Layout.Decode(a, src.Bytes, s)
		dst.Layout.Decode(b, dst.Bytes, s)
		if loss == Lossy {
			dst.Layout.Encode(expected, 0, a)
			dst.Layout.Decode(a, expected, 0)
		}
		if i, ok := sameValues(a, b); !ok {
			t.Fatalf("row %d value %d: got %g, want %g", s, i, b[i], a[i])
		}
	}
}

func TestConvertRefusesScalesThatBF16WouldRound(t *testing.T) {
	src := Rows{FP8Block{}, make([]byte, 2*BlockRowBytes)}
	for s := range 2 {
		FP8Block{}.Encode(src.Bytes, s, handRow())
	}
	dst := Rows{BF16{}, make([]byte, 2*BF16RowBytes)}
	for _, scale := range []float32{1.0 / 448, 0, -1, nan, 0x1p-118, 0x1p120} {
		storeF32(src.Bytes[BlockRowBytes+BlockScaleOffset+8:], scale) // row 1, tile 2
		err := Convert(dst, src, false)
		if !errors.Is(err, ErrLossy) || !strings.Contains(err.Error(), "row 1 tile 2") {
			t.Errorf("scale %g: %v", scale, err)
		}
		if err := Convert(dst, src, true); err != nil {
			t.Errorf("scale %g with loss allowed: %v", scale, err)
		}
	}
	// Both ends of the accepted range really are exact for every byte.
	for _, scale := range []float32{0x1p-117, 0x1p119} {
		for i := range LatentDim {
			src.Bytes[BlockRowBytes+i] = byte(i)
		}
		for j := range Tiles {
			storeF32(src.Bytes[BlockRowBytes+BlockScaleOffset+4*j:], scale)
		}
		if err := Convert(dst, src, false); err != nil {
			t.Fatal(err)
		}
		checkConverted(t, dst, src, Exact)
	}
}

func TestConvertRefusesBuffersThatDoNotMatch(t *testing.T) {
	for name, tt := range map[string]struct {
		dst, src Rows
		want     error
	}{
		"torn source":       {Rows{F32{}, make([]byte, 2304)}, Rows{BF16{}, make([]byte, 1151)}, ErrSize},
		"torn destination":  {Rows{F32{}, make([]byte, 2303)}, Rows{BF16{}, make([]byte, 1152)}, ErrSize},
		"fewer rows":        {Rows{F32{}, make([]byte, 2304)}, Rows{BF16{}, make([]byte, 2304)}, ErrSize},
		"no layout":         {Rows{F32{}, nil}, Rows{}, ErrKind},
		"negative scale":    {Rows{F32{}, nil}, Rows{FP8Raw{Scale: -1}, nil}, ErrScale},
		"scale to write":    {Rows{FP8Raw{Scale: nan}, nil}, Rows{F32{}, nil}, ErrScale},
		"nothing to do":     {Rows{F32{}, nil}, Rows{BF16{}, nil}, nil},
		"scales far apart":  {Rows{FP8Raw{Scale: 2}, nil}, Rows{FP8Raw{}, nil}, ErrLossy},
		"zero scale is one": {Rows{FP8Raw{Scale: 1}, nil}, Rows{FP8Raw{}, nil}, nil},
	} {
		if err := Convert(tt.dst, tt.src, false); !errors.Is(err, tt.want) || tt.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, tt.want)
		}
	}
}

func TestRopeOrders(t *testing.T) {
	v := make([]float32, RopeDim)
	for i := range v {
		v[i] = float32(i)
	}
	HFToKernelRope(v)
	for i := range 32 {
		if v[2*i] != float32(i) || v[2*i+1] != float32(32+i) {
			t.Fatalf("pair %d is (%g, %g), want (%d, %d)", i, v[2*i], v[2*i+1], i, 32+i)
		}
	}
	KernelToHFRope(v)
	for i := range v {
		if v[i] != float32(i) {
			t.Fatalf("element %d came back as %g", i, v[i])
		}
	}
}

func TestLossNames(t *testing.T) {
	for l, want := range map[Loss]string{
		Exact: "exact", ByScale: "exact for power-of-two scales", Lossy: "lossy", 7: "Loss(7)",
	} {
		if l.String() != want {
			t.Errorf("%d: got %q, want %q", l, l.String(), want)
		}
	}
}

// FuzzDecode feeds any bytes to every layout: no panic, and what can be checked of the values holds.
func FuzzDecode(f *testing.F) {
	f.Add([]byte{}, float32(1))
	f.Add(bytes.Repeat([]byte{0xFF}, 2*F32RowBytes), float32(0.3))
	f.Add(bytes.Repeat([]byte{0x7F, 0x80}, BlockRowBytes), nan)
	f.Fuzz(func(t *testing.T, data []byte, kScale float32) {
		row := make([]float32, RowDim)
		layouts := []Main{BF16{}, F32{}, FP8Block{}, FP8Raw{Scale: kScale}}
		for _, l := range layouts {
			tokens := len(data) / l.RowBytes()
			for s := range tokens {
				l.Decode(row, data, s)
			}
			for _, to := range layouts {
				src := Rows{l, data[:l.PageBytes(tokens)]}
				dst := Rows{to, make([]byte, to.PageBytes(tokens))}
				if err := Convert(dst, src, false); err == nil {
					checkConverted(t, dst, src, Exact)
				}
			}
		}
		for _, l := range []Index{IndexFP8{}, IndexF32{}} {
			tokens := len(data) / l.TokenBytes()
			for s := range tokens {
				l.Decode(row, data, tokens, s)
			}
		}
		if len(data) >= RawRowBytes && num.IsPow2(kScale) && exactScale(kScale) {
			block := make([]byte, BlockRowBytes)
			RawToBlock(block, data, kScale)
			if i, ok := sameValues(decoded(FP8Raw{Scale: kScale}, data), decoded(FP8Block{}, block)); !ok {
				t.Errorf("k_scale %g: value %d changed", kScale, i)
			}
		}
	})
}
