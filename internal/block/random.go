package block

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"
)

// halves lists, for each format, the offsets of its float16 scales in a block.
var halves = [...][]int{
	Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2},
	Q5_K: {0, 2}, Q6_K: {208}, IQ4_NL: {0}, IQ4_XS: {0}, IQ1_S: {0}, IQ2_XXS: {0}, IQ2_XS: {0}, IQ2_S: {0},
	IQ3_XXS: {0}, IQ3_S: {0}, TQ1_0: {52}, TQ2_0: {64}, NVFP4: nil,
}

// Random fills whole blocks with random codes and integer scales, and with float scales between 0.001 and 0.02, as
// weights for tests and benchmarks.
func (f Format) Random(dst []byte, r *rand.Rand) {
	for i := range dst {
		dst[i] = byte(r.Uint32())
	}
	for ; len(dst) >= f.Bytes(); dst = dst[f.Bytes():] {
		switch f {
		case MXFP4:
			dst[0] = byte(118 + r.IntN(5))
		case NVFP4:
			for i := range 4 {
				dst[i] = byte(1 + r.IntN(64)) // e4m3 scales up to 2
			}
		case IQ1_M: // d is in the upper nibbles of four words
			var d [2]byte
			putHalf(d[:], 0.001+float32(0.019*r.Float32()))
			for k := range 4 {
				dst[49+2*k] = dst[49+2*k]&15 | nibble(d[:], k)<<4
			}
		}
		for _, at := range halves[f] {
			putHalf(dst[at:], 0.001+float32(0.019*r.Float32()))
		}
	}
}

// centres holds, for formats with a minimum, the ratio of the minimum's scale to the codes' scale for which random
// values have mean zero.
var centres = map[Format]float32{Q4_1: -7.5, Q5_1: -15.5, Q2_K: 1.5, Q4_K: 7.5, Q5_K: 15.5}

// Drawable reports whether Draw supports a format: its scales must be float16, and all codes must be valid.
func (f Format) Drawable() bool { return f.Valid() && f != TQ2_0 && halves[f] != nil }

// Draw fills whole blocks with random codes and integer scales, and with a float scale such that the values have the
// standard deviation spread. The mean is zero in formats whose codes are symmetric.
func (f Format) Draw(dst []byte, r *rand.Rand, spread float32) error {
	if !f.Drawable() {
		return fmt.Errorf("random blocks of %v cannot be generated; want a type with float16 scales, such as "+
			"IQ2_XXS and Q2_K", f)
	}
	at := 0
	for ; at+8 <= len(dst); at += 8 {
		binary.LittleEndian.PutUint64(dst[at:], r.Uint64())
	}
	for ; at < len(dst); at++ {
		dst[at] = byte(r.Uint32())
	}
	scale := func(d float32) {
		for b := dst; len(b) >= f.Bytes(); b = b[f.Bytes():] {
			for i, at := range halves[f] {
				if i == 0 {
					putHalf(b[at:], d)
				} else {
					putHalf(b[at:], d*centres[f])
				}
			}
		}
	}
	scale(1)
	blocks := min(len(dst)/f.Bytes(), 1024) // blocks from which the deviation is estimated
	values, squares := make([]float32, blocks*f.Values()), 0.0
	f.Decode(values, dst)
	for _, v := range values {
		squares += float64(float64(v) * float64(v))
	}
	scale(spread / float32(math.Sqrt(squares/float64(max(len(values), 1)))))
	return nil
}
