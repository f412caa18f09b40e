package main

import "math"

// The decoder of e2m1 codes, two to a byte, to bfloat16. Each of the two bytes of a number is
// looked up by the code. Numbers are 2^125 times their value, so that a scale is a saturating subtraction
// from the exponent, and zero stays zero. A group of 32 weights with a scale is one 128-bit lane.
//
// The bytes of a number are put together by unpacking for the even weights of every group, the first half of
// them and the last, which are two steps. Those of the odd weights are put together by shifts: two steps of one in four
// weights. Shuffles and shifts have a port each, and this way the work of both is the same.

// Registers the decoder keeps, set by nibbleTables. Bits 4 and 5 of an index of a table belong to the
// other code of a byte, so every table is there four times.
const (
	nibbleLow  = 30 // lower bytes by code
	nibbleHigh = 31 // upper bytes
	// nibbleUpper selects the upper byte of every word.
	nibbleUpper = 28
)

// topScale is the largest e8m0 scale under which all weights are normal bfloat16, leastScale the least.
const (
	leastScale = 2
	topScale   = 252
)

// bf16OfNibble is a code as bfloat16, times 2^125. Zero has no sign.
func bf16OfNibble(c int) int {
	v := [8]float64{0, 0.5, 1, 1.5, 2, 3, 4, 6}[c&7]
	if v == 0 {
		return 0
	}
	return int(math.Float32bits(float32(math.Ldexp(v, topScale-127)))>>16) | c>>3<<15
}

func (e *emitter) nibbleData() {
	for i, name := range []string{"nibbleLow", "nibbleHigh"} {
		data := make([]byte, 64)
		for c := range data {
			data[c] = byte(bf16OfNibble(c%16) >> (8 * i))
		}
		e.table(name, data)
	}
}

func (e *emitter) nibbleTables() {
	e.op("VMOVDQU64 nibbleLow<>(SB), Z%d", nibbleLow)
	e.op("VMOVDQU64 nibbleHigh<>(SB), Z%d", nibbleHigh)
	e.op("MOVL $0xFF00, R9")
	e.op("VPBROADCASTW R9, Z%d", nibbleUpper)
}

// unpackNibbles turns 64 bytes in register b into four registers of bfloat16 from to on, and subtracts
// the exponents in register scale. It uses b and the register after it; to is at least b+2.
func (e *emitter) unpackNibbles(b, scale, to int) {
	odd := b + 1
	e.op("VPSRLW $4, Z%d, Z%d", b, odd)
	for i, codes := range []int{b, odd} {
		e.op("VPERMB Z%d, Z%d, Z%d", nibbleLow, codes, to+2*i)
		e.op("VPERMB Z%d, Z%d, Z%d", nibbleHigh, codes, codes)
	}
	e.op("VPUNPCKHBW Z%d, Z%d, Z%d", b, to, to+1)
	e.op("VPUNPCKLBW Z%d, Z%d, Z%d", b, to, to)
	// Words of even bytes: the upper one moved up, the lower one as it is. Words of odd bytes: the upper one as it is,
	// the lower one moved down.
	e.op("VPSRLW $8, Z%d, Z%d", to+2, to+3)
	e.op("VPTERNLOGD $0xF8, Z%d, Z%d, Z%d", nibbleUpper, odd, to+3) // to+3 | odd & upper
	e.op("VPSLLW $8, Z%d, Z%d", odd, odd)
	e.op("VPTERNLOGD $0xD8, Z%d, Z%d, Z%d", nibbleUpper, odd, to+2) // upper ? odd : to+2
	for i := range 4 {
		e.op("VPSUBUSW Z%d, Z%d, Z%d", scale, to+i, to+i)
	}
}
