package layout

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"sparrow/internal/num"
)

var nan = float32(math.NaN())

// mains returns the main layouts under test; FP8Row576 is included with scales that are and are not powers of two.
func mains() map[string]Main {
	return map[string]Main{
		"bf16": BF16{}, "f32": F32{}, "block": FP8Block{},
		"raw": FP8Raw{}, "raw scale 1/4": FP8Raw{Scale: 0.25}, "raw scale .3": FP8Raw{Scale: 0.3},
	}
}

// randomRow returns a row whose tiles have very different magnitudes, as real latents do.
func randomRow(r *rand.Rand) []float32 {
	v := make([]float32, RowDim)
	for i := range v {
		v[i] = float32(r.NormFloat64() * math.Ldexp(1, i/TileDim*2-6))
	}
	return v
}

// sameValues returns the first index at which a and b differ, or reports that they are equal; NaN equals NaN, and zeros
// of either sign are equal.
func sameValues(a, b []float32) (int, bool) {
	for i := range a {
		if a[i] != b[i] && (a[i] == a[i] || b[i] == b[i]) {
			return i, false
		}
	}
	return 0, true
}

func TestKindNamesParseBack(t *testing.T) {
	want := []string{"none", "bf16-1152", "fp8-656", "fp8-576", "f32-2304", "index-fp8-132", "index-f32-512", "v4-584",
		"v4-f32-2048", "index-fp4-68", "fp8-528", "bf16-1024", "f32-2048", "v41-288",
		"v41-window-528", "v41-index-68"}
	for k := range kindCount {
		if k.String() != want[k] {
			t.Errorf("kind %d is called %q, want %q", k, k, want[k])
		}
		for _, s := range []string{k.String(), strings.ToUpper(k.String())} {
			if got, err := ParseKind(s); err != nil || got != k {
				t.Errorf("%q parses to %v, %v", s, got, err)
			}
		}
		text, err := json.Marshal(k)
		if err != nil {
			t.Fatal(err)
		}
		var back Kind
		if err := json.Unmarshal(text, &back); err != nil || back != k {
			t.Errorf("%s reads back as %v, %v", text, back, err)
		}
	}
	for alias, k := range map[string]Kind{
		"BF16_576": BF16Row1152, "FP8_BLOCK_656": FP8Row656, "FP8_RAW_576": FP8Row576, "INDEX_132": IndexPage132,
		"V4_PACKED_584": V4Row584,
	} {
		if got, err := ParseKind(alias); err != nil || got != k {
			t.Errorf("%q parses to %v, %v", alias, got, err)
		}
	}
}

func TestUnknownKindsAreRefusedWithTheList(t *testing.T) {
	for _, s := range []string{"", "fp8", "fp8-584", "bf16-1152 "} {
		_, err := ParseKind(s)
		if !errors.Is(err, ErrKind) || !strings.Contains(err.Error(), "fp8-656 (FP8_BLOCK_656)") {
			t.Errorf("%q: %v", s, err)
		}
		var k Kind
		if k.UnmarshalText([]byte(s)) == nil {
			t.Errorf("%q unmarshals to %v", s, k)
		}
	}
	for _, k := range []Kind{None, IndexPage132, IndexF32Row512, IndexPage68, V4Row584, V4F32Row2048, 99} {
		if _, err := MainOf(k); !errors.Is(err, ErrKind) {
			t.Errorf("MainOf(%v): %v", k, err)
		}
	}
	for _, k := range []Kind{None, BF16Row1152, FP8Row656, FP8Row576, F32Row2304, V4Row584, V4F32Row2048, 99} {
		if _, err := IndexOf(k); !errors.Is(err, ErrKind) {
			t.Errorf("IndexOf(%v): %v", k, err)
		}
	}
	if _, err := kindCount.MarshalText(); !errors.Is(err, ErrKind) {
		t.Errorf("the first kind without a name as text: %v", err)
	}
	if _, err := Kind(99).MarshalText(); !errors.Is(err, ErrKind) {
		t.Errorf("kind 99 marshals: %v", err)
	}
}

// TestRowsDecodeWithinTheirPrecision uses every slot of a page with an odd number of tokens, so that rows after the
// first are aligned only to their own size.
func TestRowsDecodeWithinTheirPrecision(t *testing.T) {
	const tokens = 7
	for name, l := range mains() {
		t.Run(name, func(t *testing.T) {
			r := rand.New(rand.NewPCG(1, 2))
			page := make([]byte, l.PageBytes(tokens)+1)[1:] // not aligned to more than one byte
			rows := make([]float32, 0, tokens*RowDim)
			for range tokens {
				rows = append(rows, randomRow(r)...)
			}
			EncodeRows(l, page, 0, rows)
			got := make([]float32, tokens*RowDim)
			for slot := range tokens {
				l.Decode(got[slot*RowDim:], page, slot)
			}
			for i, v := range rows {
				if err := math.Abs(float64(got[i] - v)); err > tolerance(l, rows, i) {
					t.Fatalf("token %d value %d: %g became %g", i/RowDim, i%RowDim, v, got[i])
				}
			}
		})
	}
}

// tolerance returns the allowed rounding error of value i of rows: zero, half a bf16 step (2^-8 of the value is safe),
// or 1/17 of the value plus half a subnormal step of its scale.
func tolerance(l Main, rows []float32, i int) float64 {
	v := math.Abs(float64(rows[i]))
	rope := i%RowDim >= LatentDim
	switch l := l.(type) {
	case F32:
		return 0
	case FP8Raw:
		return max(v/17*(1+1e-6), float64(kScaleOr1(l.Scale))*0x1p-10*(1+1e-6))
	case FP8Block:
		if rope {
			return v * 0x1p-8
		}
		start := i/RowDim*RowDim + i%RowDim/TileDim*TileDim
		amax := 0.0
		for _, x := range rows[start : start+TileDim] {
			amax = max(amax, math.Abs(float64(x)))
		}
		return max(v/17, 2*max(amax/448, 1e-4)*0x1p-10)
	}
	return v * 0x1p-8
}

func TestNaNStaysAtItsPlace(t *testing.T) {
	for name, l := range mains() {
		clean, dirty := make([]byte, l.RowBytes()), make([]byte, l.RowBytes())
		v := randomRow(rand.New(rand.NewPCG(3, 3)))
		v[5], v[200], v[570] = 0, 0, 0
		l.Encode(clean, 0, v)
		v[5], v[200], v[570] = nan, -nan, nan
		l.Encode(dirty, 0, v)
		a, b := make([]float32, RowDim), make([]float32, RowDim)
		l.Decode(a, clean, 0)
		l.Decode(b, dirty, 0)
		for i := range a {
			isNaN := i == 5 || i == 200 || i == 570
			if isNaN && b[i] == b[i] {
				t.Errorf("%s: NaN at %d became %g", name, i, b[i])
			}
			if !isNaN && a[i] != b[i] {
				t.Errorf("%s: value %d is %g without NaN in adjacent values and %g with it", name, i, a[i], b[i])
			}
		}
	}
}

func TestIndexKeysRoundTrip(t *testing.T) {
	for name, l := range map[string]Index{
		"fp8 pow2": IndexFP8{}, "fp8 f32": IndexFP8{Mode: num.ScaleF32}, "f32": IndexF32{},
	} {
		t.Run(name, func(t *testing.T) {
			const tokens = 5
			r := rand.New(rand.NewPCG(7, 8))
			page := make([]byte, l.PageBytes(tokens))
			keys := make([][]float32, tokens)
			for s := range keys {
				keys[s] = randomRow(r)[:IndexDim]
				l.Encode(page, tokens, s, keys[s])
			}
			got := make([]float32, IndexDim)
			for s, key := range keys { // all keys are written first, so that overlaps are detected
				l.Decode(got, page, tokens, s)
				amax := 0.0
				for _, v := range key {
					amax = max(amax, math.Abs(float64(v)))
				}
				for i, v := range key {
					bound := max(math.Abs(float64(v))/17, 2*amax/448*0x1p-10) * (1 + 1e-6)
					if l.Kind() == IndexF32Row512 {
						bound = 0
					}
					if math.Abs(float64(got[i]-v)) > bound {
						t.Fatalf("token %d value %d: %g became %g", s, i, v, got[i])
					}
				}
			}
		})
	}
}

func TestCopyTokensMovesKeysAndScalesSeparately(t *testing.T) {
	l := IndexFP8{}
	src := make([]byte, l.PageBytes(PageTokens))
	for i := range src {
		src[i] = byte(i * 7)
	}
	dst := make([]byte, l.PageBytes(4))
	l.CopyTokens(IndexSlot{dst, 4, 1}, IndexSlot{src, PageTokens, 62}, 2)
	want := make([]byte, l.PageBytes(4))
	copy(want[128:384], src[62*128:64*128])
	copy(want[4*128+4:4*128+12], src[8192+62*4:8192+64*4])
	if !bytes.Equal(dst, want) {
		t.Error("the copied tokens are not the keys and scales of the source, at their places")
	}
	if got := l.Keys(dst, 4); len(got) != 4*128 || !bytes.Equal(l.Key(dst, 1), got[128:256]) {
		t.Error("Keys and Key differ")
	}
	defer func() {
		if recover() == nil {
			t.Error("tokens behind the page were copied")
		}
	}()
	l.CopyTokens(IndexSlot{dst, 4, 1}, IndexSlot{src, PageTokens, 63}, 2)
}

func TestViewsAreThePartsOfARow(t *testing.T) {
	row := make([]byte, BF16RowBytes)
	for i := range row {
		row[i] = byte(i % 251)
	}
	for _, tt := range []struct {
		name string
		got  []byte
		want []byte
	}{
		{"bf16 latent", BF16{}.Latent(row), row[:1024]},
		{"bf16 rope", BF16{}.Rope(row), row[1024:1152]},
		{"block latent", FP8Block{}.Latent(row), row[:512]},
		{"block rope", FP8Block{}.Rope(row), row[528:656]},
		{"raw latent", FP8Raw{}.Latent(row), row[:512]},
		{"raw rope", FP8Raw{}.Rope(row), row[512:576]},
	} {
		if len(tt.got) != len(tt.want) || &tt.got[0] != &tt.want[0] || cap(tt.got) != len(tt.got) {
			t.Errorf("%s: %d bytes, capacity %d, or not the row's own memory", tt.name, len(tt.got), cap(tt.got))
		}
	}
	block := make([]byte, BlockRowBytes)
	FP8Block{}.Encode(block, 0, handRow())
	if got := (FP8Block{}).Scales(block); got != [4]float32{0x1p-8, 1, 0x1p-13, 4} {
		t.Errorf("scales %v", got)
	}
}

func TestCallerMistakesPanicWithSizes(t *testing.T) {
	row, key := make([]float32, RowDim), make([]float32, IndexDim)
	for name, f := range map[string]func(){
		"slot beyond the page":    func() { FP8Block{}.Encode(make([]byte, 656), 1, row) },
		"negative slot":           func() { BF16{}.Decode(row, make([]byte, 1152), -1) },
		"page short by one byte":  func() { FP8Raw{}.Encode(make([]byte, 575), 0, row) },
		"row short by one value":  func() { F32{}.Decode(row[:575], make([]byte, 2304), 0) },
		"key short by one value":  func() { IndexFP8{}.Encode(make([]byte, 132), 1, 0, key[:127]) },
		"index slot outside":      func() { IndexFP8{}.Decode(key, make([]byte, 264), 2, 2) },
		"index page too short":    func() { IndexF32{}.Encode(make([]byte, 511), 1, 0, key) },
		"negative index slot":     func() { IndexF32{}.Decode(key, make([]byte, 512), 1, -1) },
		"rows not a whole number": func() { EncodeRows(BF16{}, make([]byte, 4096), 0, row[:100]) },
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				if msg, ok := recover().(string); !ok || !strings.HasPrefix(msg, "layout: ") {
					t.Errorf("got %v, want a message of this package", msg)
				}
			}()
			f()
		})
	}
}

func TestEncodeAndDecodeDoNotAllocate(t *testing.T) {
	row, page := make([]float32, RowDim), make([]byte, 4096)
	other := make([]byte, 4096)
	for name, l := range mains() {
		if n := testing.AllocsPerRun(10, func() { l.Encode(page, 0, row); l.Decode(row, page, 0) }); n != 0 {
			t.Errorf("%s: %g allocations", name, n)
		}
	}
	for _, l := range []Index{IndexFP8{}, IndexF32{}} {
		if n := testing.AllocsPerRun(10, func() { l.Encode(page, 4, 2, row); l.Decode(row, page, 4, 2) }); n != 0 {
			t.Errorf("%v: %g allocations", l.Kind(), n)
		}
	}
	if n := testing.AllocsPerRun(10, func() { RawToBlock(other, page, 0.3) }); n != 0 {
		t.Errorf("RawToBlock: %g allocations", n)
	}
}
