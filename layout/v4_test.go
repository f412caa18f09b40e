package layout

import (
	"bytes"
	"errors"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
)

func TestV4PagesArePaddedToDataRows(t *testing.T) {
	for _, c := range []struct{ entries, page int }{{256, 149760}, {128, 74880}, {64, 37440}, {2, 1728}, {0, 0},
		{1, 1152}} {
		if got := (V4Packed{}).PageBytes(c.entries); got != c.page || got%V4DataBytes != 0 {
			t.Errorf("a page of %d entries takes %d bytes, want %d", c.entries, got, c.page)
		}
	}
}

func TestV4Offsets(t *testing.T) {
	for _, c := range []struct {
		entries, loc      int
		data, rope, scale int64
	}{
		{256, 300, 175104, 175552, 297568},
		{64, 131, 76608, 77056, 111768},
		{2, 5, 4032, 4480, 4616},
		{256, 0, 0, 448, 147456},
	} {
		data, scale := V4Packed{}.DataOffset(c.entries, c.loc), V4Packed{}.ScaleOffset(c.entries, c.loc)
		if data != c.data || data+V4RopeOffset != c.rope || scale != c.scale {
			t.Errorf("location %d in pages of %d: data %d, rope %d, scale %d, want %+v", c.loc, c.entries, data,
				data+V4RopeOffset, scale, c)
		}
	}
	// The offset of the last location of the largest pool that a page number can address needs 64-bit arithmetic.
	if got := (V4Packed{}).DataOffset(256, 1<<30); got != 1<<22*149760 {
		t.Errorf("location 2^30 starts at %d", got)
	}
}

// The entry has groups whose bytes can be computed by hand.
//
//	group 0: 1, -2.5, .3, 100, .001, 0...  100/448 = .2232 -> 2^-2, exponent 125. Codes: 4 = 2^2: (2+7)<<3 = 48;
//	         -10 = -1.25*2^3: 80|(10<<3)|2 = d2; 1.2 = 1.2*2^0: 9.6 steps, 10: (7<<3)|2 = 3a;
//	         400 = 1.5625*2^8: 12.5 steps, tie, even 12: (15<<3)|4 = 7c; .004 = 2.048 steps of 2^-9: 02.
//	group 1: zeros: floor 1e-4/448 = 2^-22.1 -> 2^-22, exponent 105.
//	group 2: 448: 448/448 = 1, exponent 127, code 7e.
//	group 6: -3: 3/448 = 2^-7.2 -> 2^-7, exponent 120; -3*128 = -384 = -1.5*2^8: fc.
func TestV4BytesByHand(t *testing.T) {
	v := make([]float32, V4Dim)
	copy(v, []float32{1, -2.5, 0.3, 100, 0.001})
	v[128] = 448
	v[384+63] = -3
	v[448], v[449], v[511] = 1, -2, math.Pi
	const entries = 2
	page := bytes.Repeat([]byte{0xEE}, V4Packed{}.PageBytes(entries))
	V4Packed{}.Encode(page, entries, 1, v)
	checkFields(t, page, []field{
		{"entry 0, not written", 0, bytes.Repeat([]byte{0xEE}, 576)},
		{"group 0", 576, []byte{0x48, 0xD2, 0x3A, 0x7C, 0x02, 0}},
		{"group 1", 576 + 64, make([]byte, 64)},
		{"group 2", 576 + 128, []byte{0x7E, 0}},
		{"end of group 6", 576 + 446, []byte{0, 0xFC}},
		{"rope", 576 + 448, []byte{0x80, 0x3F, 0, 0xC0, 0, 0}},
		{"last rope", 576 + 574, []byte{0x49, 0x40}},
		{"scales of entry 0, not written", 1152, bytes.Repeat([]byte{0xEE}, 8)},
		{"scales", 1160, []byte{125, 105, 127, 105, 105, 105, 120, 0}},
		{"padding, not written", 1168, bytes.Repeat([]byte{0xEE}, 1728-1168)},
	})
	got := make([]float32, V4Dim)
	V4Packed{}.Decode(got, page, entries, 1)
	want := []float32{1, -2.5, 0.3125, 96, 0.0009765625}
	for i, w := range want {
		if got[i] != w {
			t.Errorf("value %d decodes to %v, want %v", i, got[i], w)
		}
	}
	if got[128] != 448 || got[447] != -3 || got[448] != 1 || got[449] != -2 || got[511] != num.RoundBF16(math.Pi) {
		t.Errorf("decoded %v %v %v %v %v", got[128], got[447], got[448], got[449], got[511])
	}
}

// Every code with every exponent decodes to the product of the two, in float32 and, if the product is a normal number,
// also in bf16.
func TestV4DecodesEveryCodeExactly(t *testing.T) {
	page := make([]byte, V4Packed{}.PageBytes(1))
	got := make([]float32, V4Dim)
	for e := range 256 {
		for code := range 256 {
			page[0], page[V4DataBytes] = byte(code), byte(e)
			V4Packed{}.Decode(got, page, 1, 0)
			want := float64(num.FromE4M3(byte(code))) * math.Ldexp(1, e-127)
			if e == 255 {
				want = math.NaN()
			}
			switch {
			case math.IsNaN(want):
				if got[0] == got[0] {
					t.Fatalf("exponent %d code %#x: got %v, want NaN", e, code, got[0])
				}
			case math.Abs(want) > math.MaxFloat32:
				if !math.IsInf(float64(got[0]), 0) {
					t.Fatalf("exponent %d code %#x: got %v, want infinity", e, code, got[0])
				}
			case float64(got[0]) != want:
				t.Fatalf("exponent %d code %#x: got %v, want %v", e, code, got[0], want)
			case math.Abs(want) >= 0x1p-126 && num.RoundBF16(got[0]) != got[0]:
				t.Fatalf("exponent %d code %#x: %v is not a bf16", e, code, got[0])
			}
		}
	}
}

// The error is at most 1/17 of the value, or half a step of the subnormals for values far below the largest of their
// group. It is never more than 1/17 of the group's largest value.
func TestV4RoundTripError(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	page := make([]byte, V4Packed{}.PageBytes(3))
	v, got := make([]float32, V4Dim), make([]float32, V4Dim)
	for range 200 {
		for i := range v {
			v[i] = float32(r.NormFloat64() * math.Ldexp(1, r.IntN(24)-12))
		}
		V4Packed{}.Encode(page, 3, 2, v)
		V4Packed{}.Decode(got, page, 3, 2)
		for g := range V4Tiles {
			var largest float64
			for _, x := range v[g*V4TileDim:][:V4TileDim] {
				largest = max(largest, math.Abs(float64(x)))
			}
			scale := float64(num.FromE8M0((V4Packed{}).Scales(page, 3, 2)[g]))
			for i, x := range v[g*V4TileDim:][:V4TileDim] {
				err := math.Abs(float64(got[g*V4TileDim+i]) - float64(x))
				if err > math.Max(math.Abs(float64(x))/17, scale*0x1p-10) || err > largest/17 {
					t.Fatalf("group %d: %v became %v (largest %v)", g, x, got[g*V4TileDim+i], largest)
				}
			}
		}
		for i := V4NopeDim; i < V4Dim; i++ {
			if got[i] != num.RoundBF16(v[i]) {
				t.Fatalf("rope value %v became %v", v[i], got[i])
			}
		}
	}
}

// Decoded values are encoded to themselves, so that decoding and encoding a page repeatedly does not change its values.
// Bytes may change once, if rounding moved the largest value of a group to the next lower power of two.
func TestV4ValuesDoNotDrift(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, l := range []V4{V4Packed{}, V4F32{}, V41Entry{}, V41Window{}} {
		const entries = 5
		page := make([]byte, l.PageBytes(entries))
		v, again := make([]float32, V4Dim), make([]float32, V4Dim)
		for range 100 {
			for i := range v {
				v[i] = float32(r.NormFloat64())
			}
			l.Encode(page, entries, 3, v)
			l.Decode(v, page, entries, 3)
			l.Encode(page, entries, 3, v)
			l.Decode(again, page, entries, 3)
			if i, ok := sameValues(v, again); !ok {
				t.Fatalf("%v: value %d: %v became %v", l.Kind(), i, v[i], again[i])
			}
		}
	}
}

func TestV4ExactEntriesKeepEveryBit(t *testing.T) {
	v := make([]float32, V4Dim)
	for i := range v {
		v[i] = math.Float32frombits(uint32(i) * 0x01234567)
	}
	page := make([]byte, V4F32{}.PageBytes(2))
	V4F32{}.Encode(page, 2, 1, v)
	got := make([]float32, V4Dim)
	V4F32{}.Decode(got, page, 2, 1)
	for i := range v {
		if math.Float32bits(v[i]) != math.Float32bits(got[i]) {
			t.Fatalf("value %d: %x became %x", i, math.Float32bits(v[i]), math.Float32bits(got[i]))
		}
	}
}

func TestV4NaNStaysAtItsPlace(t *testing.T) {
	v := make([]float32, V4Dim)
	v[0], v[1], v[64], v[500] = nan, 1, float32(math.Inf(1)), nan
	page := make([]byte, V4Packed{}.PageBytes(1))
	V4Packed{}.Encode(page, 1, 0, v)
	got := make([]float32, V4Dim)
	V4Packed{}.Decode(got, page, 1, 0)
	if got[0] == got[0] || got[1] != 1 || got[500] == got[500] || !(got[64] > 1e38) || got[65] != 0 {
		t.Errorf("decoded %v %v %v %v %v", got[0], got[1], got[500], got[64], got[65])
	}
}

func TestV4RefusesOtherKindsAndSlots(t *testing.T) {
	for k := range kindCount {
		if _, err := V4Of(k); (err == nil) != (k == V4Row584 || k == V4F32Row2048 || k == V41Row288 ||
			k == V41Window528) ||
			err != nil && !errors.Is(err, ErrKind) {
			t.Errorf("V4Of(%v): %v", k, err)
		}
	}
	for _, l := range []V4{V4Packed{}, V4F32{}, V41Entry{}, V41Window{}} {
		page := make([]byte, l.PageBytes(2))
		for _, bad := range []func(){
			func() { l.Encode(page, 2, 2, make([]float32, V4Dim)) },
			func() { l.Encode(page, 2, -1, make([]float32, V4Dim)) },
			func() { l.Decode(make([]float32, V4Dim-1), page, 2, 0) },
			func() { l.Decode(make([]float32, V4Dim), page[:100], 2, 0) },
		} {
			func() {
				defer func() {
					if recover() == nil {
						t.Errorf("%v: a caller's mistake passed", l.Kind())
					}
				}()
				bad()
			}()
		}
	}
}
