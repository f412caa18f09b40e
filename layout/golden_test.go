package layout

import (
	"bytes"
	"math"
	"testing"

	"sparrow/internal/num"
)

// handRow returns a row whose encoded bytes can be computed by hand.
//
//	tile 0: 1, -0.5, 0.0013, 0...   amax 1:    1/448 = 2^-8.8  -> scale 2^-8
//	tile 1: 448, -448, 17, 0...     amax 448:  448/448 = 1     -> scale 1
//	tile 2: zeros                   amax 0:    floor 1e-4 = 2^-13.3 -> scale 2^-13
//	tile 3: -1000, 2, 0...          amax 1000: 2.23 = 2^1.16   -> scale 4
//	rope:   rope[r] = r/2, rope[63] = -pi
func handRow() []float32 {
	v := make([]float32, RowDim)
	copy(v[0:], []float32{1, -0.5, 0.0013})
	copy(v[128:], []float32{448, -448, 17})
	copy(v[384:], []float32{-1000, 2})
	for r := range RopeDim {
		v[LatentDim+r] = float32(r) / 2
	}
	v[LatentDim+63] = -math.Pi
	return v
}

// field is a run of expected bytes at an offset.
type field struct {
	name string
	at   int
	want []byte
}

func checkFields(t *testing.T, got []byte, fields []field) {
	t.Helper()
	for _, f := range fields {
		if g := got[f.at : f.at+len(f.want)]; !bytes.Equal(g, f.want) {
			t.Errorf("%s at byte %d: got % x, want % x", f.name, f.at, g, f.want)
		}
	}
}

func TestFP8BlockBytesByHand(t *testing.T) {
	page := make([]byte, FP8Block{}.PageBytes(3))
	FP8Block{}.Encode(page, 1, handRow())
	checkFields(t, page[656:1312], []field{
		// 1*2^8 = 256 = 2^8 has exponent field 8+7 = 15, so its code is 15<<3 = 78. -.5*2^8 = -128 = -2^7 has code
		// 80|14<<3 = f0. .0013*256 = .3328 = 1.3312*2^-2 is 1.3312*8 = 10.65 steps, rounded to 11, code (5<<3)|3 = 2b.
		{"tile 0", 0, []byte{0x78, 0xF0, 0x2B, 0}},
		// 448 = 1.75*2^8 has code 15<<3|6 = 7e, and -448 has code fe. 17 = 1.0625*2^4 is 8.5 steps, a tie that rounds
		// to the even 8, code 11<<3 = 58.
		{"tile 1", 128, []byte{0x7E, 0xFE, 0x58, 0}},
		{"tile 2", 256, make([]byte, 128)},
		// -1000/4 = -250 = -1.953125*2^7 is 15.6 steps, rounded to 16, which is the next exponent: 80|15<<3 = f8. 2/4 =
		// 2^-1 has code 6<<3 = 30.
		{"tile 3", 384, []byte{0xF8, 0x30, 0}},
		// The scales are little-endian float32: 2^-8 is 119<<23 = 3b800000, 1 is 3f800000, 2^-13 is 114<<23 = 39000000,
		// and 4 is 129<<23 = 40800000.
		{"scales", 512, []byte{0, 0, 0x80, 0x3B, 0, 0, 0x80, 0x3F, 0, 0, 0, 0x39, 0, 0, 0x80, 0x40}},
		// The bf16 codes of .5, 1 and 1.5 are 3f00, 3f80 and 3fc0; rope element r is at byte 528+2r.
		{"rope 0 to 3", 528, []byte{0, 0, 0, 0x3F, 0x80, 0x3F, 0xC0, 0x3F}},
		// 30 = 1.875*2^4 has code 0x41f0. Rope element 60 is at byte 528+120 = 648.
		{"rope 60", 648, []byte{0xF0, 0x41}},
		// pi is 40490fdb. The dropped part is below half a step, so bf16 is 4049, and with the sign c049. It is in the
		// last two bytes, at 528+126 = 654.
		{"rope 63", 654, []byte{0x49, 0xC0}},
	})
	if !bytes.Equal(page[:656], make([]byte, 656)) || !bytes.Equal(page[1312:], make([]byte, 656)) {
		t.Error("neighbouring rows were touched")
	}
	got := make([]float32, RowDim)
	FP8Block{}.Decode(got, page, 1)
	for i, want := range map[int]float32{
		0: 1, 1: -0.5, 2: 11 * 0x1p-13 /* 11/8*2^-2*2^-8 */, 128: 448, 129: -448, 130: 16, 300: 0, 384: -1024, 385: 2,
		512: 0, 513: 0.5, 572: 30, 575: -3.140625, /* 0x4049 = 1.5703125*2 */
	} {
		if got[i] != want {
			t.Errorf("value %d: got %g, want %g", i, got[i], want)
		}
	}
}

func TestFP8RawBytesByHand(t *testing.T) {
	page := make([]byte, FP8Raw{}.PageBytes(2))
	FP8Raw{}.Encode(page, 1, handRow())
	checkFields(t, page[576:], []field{
		// 1 = 2^0 has code 7<<3 = 38, and -.5 has code 80|6<<3 = b0. .0013*512 = .67 steps of 2^-9 round to 1.
		{"tile 0", 0, []byte{0x38, 0xB0, 0x01, 0}},
		{"tile 1", 128, []byte{0x7E, 0xFE, 0x58, 0}},
		// -1000 is clipped to -448; 2 = 2^1 has code 8<<3 = 40.
		{"tile 3", 384, []byte{0xFE, 0x40, 0}},
		// Rope elements are e4m3 too: 0, .5, 1, and 1.5 = 1.5*2^0 with code 38|4.
		{"rope 0 to 3", 512, []byte{0, 0x30, 0x38, 0x3C}},
		// -3.14159 = -1.5708*2^1 is 12.57 steps, rounded to 13, code 80|8<<3|5 = c5.
		{"rope 63", 575, []byte{0xC5}},
	})
	// With k_scale 4 every stored value is a quarter: 1/4 = 2^-2 has code 5<<3, -1000/4 = -250 has code f8, and .5/4 =
	// 2^-3 has code 4<<3.
	FP8Raw{Scale: 4}.Encode(page, 0, handRow())
	checkFields(t, page, []field{{"tile 0", 0, []byte{0x28}}, {"tile 3", 384, []byte{0xF8}},
		{"rope 1", 513, []byte{0x20}}})
	got := make([]float32, RowDim)
	FP8Raw{Scale: 4}.Decode(got, page, 0)
	if got[0] != 1 || got[384] != -1024 || got[513] != 0.5 {
		t.Errorf("with k_scale 4 got %g, %g, %g, want 1, -1024, 0.5", got[0], got[384], got[513])
	}
}

func TestBF16AndF32BytesByHand(t *testing.T) {
	page := make([]byte, BF16{}.PageBytes(2))
	BF16{}.Encode(page, 1, handRow())
	checkFields(t, page[1152:], []field{
		{"latent 0", 0, []byte{0x80, 0x3F, 0x00, 0xBF}},     // 1 and -.5
		{"latent 128", 256, []byte{0xE0, 0x43, 0xE0, 0xC3}}, // 448 = 1.75*2^8: (135<<7)|0x60 = 43e0
		{"rope 1", 1026, []byte{0x00, 0x3F}},
		{"rope 63", 1150, []byte{0x49, 0xC0}},
	})
	page = make([]byte, F32{}.PageBytes(2))
	F32{}.Encode(page, 1, handRow())
	checkFields(t, page[2304:], []field{
		{"latent 0", 0, []byte{0, 0, 0x80, 0x3F, 0, 0, 0, 0xBF}},
		{"rope 63", 2300, []byte{0xDB, 0x0F, 0x49, 0xC0}}, // -pi
	})
}

func TestIndexPageBytesByHand(t *testing.T) {
	key := make([]float32, IndexDim)
	key[0], key[1], key[127] = 1, -0.5, 0.0013
	for _, tt := range []struct {
		name   string
		tokens int
		slot   int
		mode   num.ScaleMode
		fields []field
	}{
		// The scale is 2^-8 as in tile 0 of handRow. The key is at byte 2*128 = 256, and its scale at 64*128 + 2*4 =
		// 8200.
		{"pool page, power-of-two scale", 64, 2, num.ScalePow2, []field{
			{"key", 256, []byte{0x78, 0xF0, 0}}, {"last element", 383, []byte{0x2B}},
			{"scale", 8200, []byte{0, 0, 0x80, 0x3B}},
		}},
		// 1/448 = 1.142857*2^-9 has mantissa .142857*2^23 = 1198372.6, rounded to 1198373 = 124925h, and exponent 118:
		// 3b124925. 1/scale = 448 has code 7e, and -.5/scale = -224 = -1.75*2^7 has code f6. .0013*448 = .5824 =
		// 1.1648*2^-1 is 9.3 steps, rounded to 9, code 6<<3|1 = 31.
		{"pool page, float32 scale", 64, 2, num.ScaleF32, []field{
			{"key", 256, []byte{0x7E, 0xF6, 0}}, {"last element", 383, []byte{0x31}},
			{"scale", 8200, []byte{0x25, 0x49, 0x12, 0x3B}},
		}},
		// In a gathered buffer of 5 tokens the keys occupy 640 bytes, the scale of token 4 is at 640+16, and the buffer
		// ends at 660.
		{"gathered page of 5", 5, 4, num.ScalePow2, []field{
			{"key", 512, []byte{0x78, 0xF0, 0}}, {"scale", 656, []byte{0, 0, 0x80, 0x3B}},
		}},
		{"page of one token", 1, 0, num.ScalePow2, []field{
			{"key", 0, []byte{0x78, 0xF0, 0}}, {"scale", 128, []byte{0, 0, 0x80, 0x3B}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			l := IndexFP8{Mode: tt.mode}
			page := make([]byte, l.PageBytes(tt.tokens))
			l.Encode(page, tt.tokens, tt.slot, key)
			checkFields(t, page, tt.fields)
			for i := range page { // no other byte was written
				at := tt.slot * IndexDim
				inKey := i >= at && i < at+IndexDim
				inScale := i/4 == (tt.tokens*IndexDim)/4+tt.slot
				if page[i] != 0 && !inKey && !inScale {
					t.Fatalf("byte %d is %#x, outside the token", i, page[i])
				}
			}
		})
	}
	// For a zero key, 1e-4/448 = 2^-22.1 rounds up to 2^-22, whose exponent field is 105: 105<<23 = 34800000.
	page := make([]byte, 132)
	IndexFP8{}.Encode(page, 1, 0, make([]float32, IndexDim))
	checkFields(t, page, []field{{"zero key", 0, make([]byte, 128)}, {"its scale", 128, []byte{0, 0, 0x80, 0x34}}})
}

func TestIndexAddresses(t *testing.T) {
	// Location 130 is slot 2 of page 2: its key is at 2*8448 + 256 and its scale at 2*8448 + 8192 + 8. Location 131 is
	// the next slot.
	for _, tt := range []struct{ loc, key, scale int }{
		{0, 0, 8192}, {63, 8064, 8444}, {64, 8448, 16640}, {130, 17152, 25096}, {131, 17280, 25100},
	} {
		l := IndexFP8{}
		if got := l.KeyOffset(PageTokens, tt.loc); got != tt.key {
			t.Errorf("key of loc %d at %d, want %d", tt.loc, got, tt.key)
		}
		if got := l.ScaleOffset(PageTokens, tt.loc); got != tt.scale {
			t.Errorf("scale of loc %d at %d, want %d", tt.loc, got, tt.scale)
		}
	}
}

func TestSizes(t *testing.T) {
	for k, want := range map[Kind]int{BF16Row1152: 1152, FP8Row656: 656, FP8Row576: 576, F32Row2304: 2304} {
		l, err := MainOf(k)
		if err != nil {
			t.Fatal(err)
		}
		if l.Kind() != k || l.RowBytes() != want || l.PageBytes(64) != 64*want || l.PageBytes(0) != 0 {
			t.Errorf("%v: kind %v, %d per row, %d per page", k, l.Kind(), l.RowBytes(), l.PageBytes(64))
		}
	}
	for k, want := range map[Kind]int{IndexPage132: 8448, IndexF32Row512: 32768} {
		l, err := IndexOf(k)
		if err != nil {
			t.Fatal(err)
		}
		if l.Kind() != k || l.PageBytes(PageTokens) != want || l.TokenBytes()*PageTokens != want {
			t.Errorf("%v: kind %v, %d per token, %d per page", k, l.Kind(), l.TokenBytes(), l.PageBytes(64))
		}
	}
}
