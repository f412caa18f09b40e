package block

import "math/rand/v2"

// halves holds, per format, where in a block its float16 scales are.
var halves = [...][]int{
	Q4_0: {0}, Q4_1: {0, 2}, Q5_0: {0}, Q5_1: {0, 2}, Q8_0: {0}, Q2_K: {80, 82}, Q3_K: {108}, Q4_K: {0, 2},
	Q5_K: {0, 2}, Q6_K: {208}, IQ4_NL: {0}, IQ4_XS: {0}, IQ1_S: {0}, IQ2_XXS: {0}, IQ2_XS: {0}, IQ2_S: {0},
	IQ3_XXS: {0}, IQ3_S: {0}, TQ1_0: {52}, TQ2_0: {64}, NVFP4: nil,
}

// Random fills whole blocks with any codes and integer scales, and with float scales between 0.001 and 0.02: weights
// for tests and benchmarks.
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
				dst[i] = byte(1 + r.IntN(64)) // up to 2
			}
		case IQ1_M: // the bits of d are the upper nibbles of four words
			var d [2]byte
			putHalf(d[:], 0.001+0.019*r.Float32())
			for k := range 4 {
				dst[49+2*k] = dst[49+2*k]&15 | nibble(d[:], k)<<4
			}
		}
		for _, at := range halves[f] {
			putHalf(dst[at:], 0.001+0.019*r.Float32())
		}
	}
}
