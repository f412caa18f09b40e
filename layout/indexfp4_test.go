package layout

import (
	"bytes"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
)

// Keys and scales are at the addresses of the v4 spec, 3.3.
func TestIndexFP4Addresses(t *testing.T) {
	l := IndexFP4{}
	if k, s := l.KeyOffset(64, 131), l.ScaleOffset(64, 131); k != 2*4352+3*64 || s != 2*4352+4096+3*4 {
		t.Errorf("location 131: values at %d, scales at %d", k, s)
	}
	if l.PageBytes(64) != 4352 || l.TokenBytes() != 68 {
		t.Errorf("a page has %d bytes, a key %d", l.PageBytes(64), l.TokenBytes())
	}
}

// The key has groups whose bytes can be computed by hand.
//
//	group 0: 6, -3, .75, 1.75, 3.5, 5, .25, -.2, 0...: 6/6 = 1, exponent 127. Codes: 6 = 7; -3 = 8|5 = d;
//	         .75, a tie: 1 = 2; 1.75, a tie: 2 = 4; 3.5, a tie: 4 = 6; 5, a tie: 4 = 6; .25, a tie: 0; -.2: -0 = 8.
//	         Pairs: d7 42 66 80.
//	group 1: zeros: floor 1e-4/6 = 2^-15.9 -> 2^-15, exponent 112.
//	group 2: 7: 7/6 -> 2, exponent 128; 3.5, a tie: 4 = 6.
//	group 3: -.01 at its end: .01/6 = 2^-9.2 -> 2^-9, exponent 118; -5.12: nearer to 6 than to 4 = f, in the high
//	         nibble.
func TestIndexFP4BytesByHand(t *testing.T) {
	key := make([]float32, IndexDim)
	copy(key, []float32{6, -3, .75, 1.75, 3.5, 5, .25, -.2})
	key[64], key[127] = 7, -.01
	page := bytes.Repeat([]byte{0xEE}, IndexFP4{}.PageBytes(3))
	IndexFP4{}.Encode(page, 3, 1, key)
	zeros := func(n int) []byte { return make([]byte, n) }
	checkFields(t, page, []field{
		{"key 0, not written", 0, bytes.Repeat([]byte{0xEE}, 64)},
		{"group 0", 64, append([]byte{0xd7, 0x42, 0x66, 0x80}, zeros(12)...)},
		{"group 1", 80, zeros(16)},
		{"group 2", 96, append([]byte{0x06}, zeros(15)...)},
		{"group 3", 112, append(zeros(15), 0xf0)},
		{"key 2, not written", 128, bytes.Repeat([]byte{0xEE}, 64)},
		{"exponents", 192, []byte{0xEE, 0xEE, 0xEE, 0xEE, 127, 112, 128, 118, 0xEE, 0xEE, 0xEE, 0xEE}},
	})
	got := make([]float32, IndexDim)
	IndexFP4{}.Decode(got, page, 3, 1)
	want := make([]float32, IndexDim)
	copy(want, []float32{6, -3, 1, 2, 4, 4, 0, float32(math.Copysign(0, -1))})
	want[64], want[127] = 8, -6.0/512
	if i, ok := sameValues(got, want); !ok {
		t.Errorf("value %d is %v, want %v", i, got[i], want[i])
	}
	to := make([]byte, IndexFP4{}.PageBytes(2))
	IndexFP4{}.CopyTokens(IndexSlot{Page: to, Tokens: 2, Slot: 1}, IndexSlot{Page: page, Tokens: 3, Slot: 1}, 1)
	IndexFP4{}.Decode(got, to, 2, 1)
	if i, ok := sameValues(got, want); !ok || !bytes.Equal(to[:64], zeros(64)) {
		t.Errorf("a moved key: value %d is %v, want %v; key 0 must stay", i, got[i], want[i])
	}
}

// Every stored value is within half a step of the original value, and rounding again changes nothing.
func TestIndexFP4RoundTrip(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	page := make([]byte, IndexFP4{}.PageBytes(1))
	got := make([]float32, IndexDim)
	for range 200 {
		key := make([]float32, IndexDim)
		for i := range key {
			key[i] = float32(r.NormFloat64() * math.Ldexp(1, i/IndexFP4Group*3-6))
		}
		IndexFP4{}.Encode(page, 1, 0, key)
		IndexFP4{}.Decode(got, page, 1, 0)
		rounded := append([]float32(nil), key...)
		num.RoundE2M1(rounded, IndexFP4Group)
		if i, ok := sameValues(rounded, got); !ok {
			t.Fatalf("value %d is rounded to %v and stored as %v", i, rounded[i], got[i])
		}
		for g := range 4 {
			peak := 0.0
			for _, v := range key[g*IndexFP4Group:][:IndexFP4Group] {
				peak = max(peak, math.Abs(float64(v)))
			}
			for i, v := range key[g*IndexFP4Group:][:IndexFP4Group] {
				// Steps are at most a third of the largest value of a group, because that value is stored as more than
				// 3, with steps of at most 2 up to 6.
				if d := math.Abs(float64(got[g*IndexFP4Group+i] - v)); d > peak/3 ||
					d > math.Abs(float64(v))/3 && d > peak/12 {
					t.Fatalf("value %v of a group up to %v became %v", v, peak, got[g*IndexFP4Group+i])
				}
			}
		}
		num.RoundE2M1(rounded, IndexFP4Group)
		if i, ok := sameValues(rounded, got); !ok {
			t.Fatalf("value %d drifts from %v to %v", i, got[i], rounded[i])
		}
	}
}
