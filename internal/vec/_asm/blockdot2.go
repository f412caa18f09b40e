package main

import "fmt"

// emitBlocks2 writes the kernels of AVX2 that multiply one row of x by eight rows of weights. A step is one block.
//
//	AX arguments   SI codes of x   DI its scales   CX its sums   BX bytes to the step   R8 a row's step
//	Y0 results   X1, X2 the dwords with the scales of rows 0 to 3 and 4 to 7   Y15 0x0F in every byte
//	Y3 ... Y5 partial tree, Y6 ... Y8 that of minimums, or upper and lower bits of Q6_K
func emitBlocks2(e *emitter) {
	blockData2(e)
	for _, f := range append(blockFormats, plainFormats...) {
		emitDot2(e, f)
	}
}

func blockData2(e *emitter) {
	bytes := func(name string, at func(i int) int) {
		data := make([]byte, 32)
		for i := range data {
			data[i] = byte(at(i))
		}
		table(e, name, data)
	}
	dwords := func(name string, word func(i int) uint32) {
		bytes(name, func(i int) int { return int(word(i/4) >> (8 * (i % 4))) })
	}
	same := func(name string, word uint32) { dwords(name, func(int) uint32 { return word }) }
	same("blockNibble", 0x0F0F0F0F)
	same("blockUpper", 0x30303030)
	same("blockSix", 0x3F3F3F3F)
	same("ones2", 0x00010001)
	same("one2", 1)
	same("two2", 2)
	same("byte2", 0xFF)
	same("subnormal2", 0x00200000)
	dwords("halves2", func(i int) uint32 { return uint32(i / 4 * 4) })
	values := [16]int{0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12}
	bytes("e2m1Raised2", func(i int) int { return values[i%16] + 16 })
	for j := range 4 {
		bytes(fmt.Sprintf("word2%d", j), func(i int) int { return 2*j + i%2 })          // one word everywhere
		bytes(fmt.Sprintf("pair2%d", j), func(i int) int { return 4*j + i/16*2 + i%2 }) // one word in each half
	}
	bytes("minPairs2", func(i int) int { return 8 + i%16/4*2 + i%2 })
	for upper, name := range []string{"lowerWords2", "upperWords2"} { // words of four dwords
		bytes(name, func(i int) int {
			if i%16 >= 8 {
				return 0x80
			}
			return i%16/2*4 + 2*upper + i%2
		})
	}
}

func emitDot2(e *emitter, f blockFormat) {
	e.function("blockDot2"+f.name, "blockArgs", fmt.Sprintf("one row of x by eight rows of %s.", f.name))
	e.op(`
		XORQ BX, BX
		MOVQ blockArgs_ahead(AX), R13
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_sums(AX), CX
		VMOVDQU blockNibble<>(SB), Y15`)
	if f.plain() { // begin with the results of earlier blocks
		e.op(`
			MOVQ blockArgs_y(AX), R9
			VMOVUPS (R9), Y0`)
	} else {
		e.zero(0)
	}
	sumBytes, scaleAt := 4, 0
	if !f.small() {
		sumBytes = 32
	}
	switch {
	case f == q6k:
		scaleAt = 206
	case f.plain() && !f.small():
		scaleAt = plainD
	}
	loop, store := e.label("loop"), e.label("store")
	e.at(loop)
	for r := range 8 {
		e.op(`
			MOVQ blockArgs_rows+%d(AX), R8
			ADDQ BX, R8`, 8*r)
		for at := 0; at < f.bytes && !f.plain(); at += 64 {
			e.op("PREFETCHT0 %d(R8)(R13*1)", at)
		}
		e.op("VPINSRD $%d, %d(R8), X%d, X%d", r%4, scaleAt, 1+r/4, 1+r/4)
		switch f {
		case q4k:
			dot2Q4K(e)
			addLanes2(e, r, 9, 6)
		case q6k:
			dot2Q6K(e)
		case plainRaised, plainMins, plainSigned:
			dot2Plain(e, f)
			if f == plainMins {
				e.op(`
					VMOVDQU %d(R8), Y9
					VPMADDWD (CX), Y9, Y9`, plainLeast)
				addLanes2(e, r, 9, 6)
			}
		default:
			dot2Block(e, f)
		}
		addLanes2(e, r, 11, 3)
	}
	e.op("VINSERTI128 $1, X2, Y1, Y1")
	if f.small() {
		scale2Block(e, f)
	} else {
		scale2Super(e, f)
	}
	e.op(`
		ADDQ $%d, SI
		ADDQ $4, DI
		ADDQ $%d, CX
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s
		MOVQ blockArgs_y(AX), DI
		VMOVDQU blockArgs_lanes(AX), Y1
		CMPQ blockArgs_add(AX), $0`, f.values, sumBytes, f.bytes, loop)
	e.op(`
		JE %s
		VMASKMOVPS (DI), Y1, Y2
		VADDPS Y2, Y0, Y0`, store)
	e.at(store)
	e.op("VMASKMOVPS Y0, Y1, (DI)")
	e.ret()
}

// dot2Block writes the products of a block of 32 to the lanes of Y11.
func dot2Block(e *emitter, f blockFormat) {
	if f == q80 || f == plain32 { // the unsigned factor is the magnitude of the weight; x gets the sign of the weight
		e.op(`
			VMOVDQU %d(R8), Y9
			VMOVDQU (SI), Y10
			VPSIGNB Y9, Y10, Y10
			VPABSB Y9, Y9
			VPMADDUBSW Y10, Y9, Y11`, f.bytes-32)
	} else {
		e.op(`
			VBROADCASTI128 %d(R8), Y9
			VPSRLVD halves2<>(SB), Y9, Y9
			VPAND Y15, Y9, Y9`, f.bytes-16)
		if f == mxfp4 {
			e.op(`
				VMOVDQU e2m1Raised2<>(SB), Y10
				VPSHUFB Y9, Y10, Y9`)
		}
		e.op("VPMADDUBSW (SI), Y9, Y11")
	}
	e.op("VPMADDWD ones2<>(SB), Y11, Y11")
}

// dot2Q4K writes the products of a block to the lanes of Y11, and the products of minimums and sums of x to Y9.
func dot2Q4K(e *emitter) {
	scalesOf(e, q4k, 9)
	e.op("VPXOR Y11, Y11, Y11")
	for q := range 4 {
		if q%2 == 0 { // copy the words of four scales to both halves
			e.op("VPERM2I128 $%d, Y9, Y9, Y10", q/2*0x11)
		}
		e.op("VMOVDQU %d(R8), Y13", 16+32*q)
		for upper := range 2 {
			if upper == 1 {
				e.op("VPSRLW $4, Y13, Y13")
			}
			e.op(`
				VPAND Y15, Y13, Y12
				VPMADDUBSW %d(SI), Y12, Y12
				VPSHUFB word2%d<>(SB), Y10, Y14
				VPMADDWD Y14, Y12, Y12
				VPADDD Y12, Y11, Y11`, 64*q+32*upper, (2*q+upper)%4)
		}
	}
	e.op(`
		VPSHUFB minPairs2<>(SB), Y9, Y9
		VPMADDWD (CX), Y9, Y9`)
}

// dot2Q6K writes the products of a block to the lanes of Y11.
func dot2Q6K(e *emitter) {
	const high, low = 6, 7 // high to high+2: lower bits of the first and second 32 values
	scalesOf(e, q6k, 9)
	e.op("VPMADDWD (CX), Y9, Y12") // 32 was added to the values
	e.op(`
		VPSLLD $5, Y12, Y12
		VPXOR Y11, Y11, Y11
		VPSUBD Y12, Y11, Y11`)
	for g := range 2 {
		e.op(`
			VPERM2I128 $%d, Y9, Y9, Y10
			VMOVDQU %d(R8), Y%d`, g*0x11, 128+32*g, high)
		for part := range 4 { // 32 values each
			l := low + part%2
			if part < 2 {
				e.op("VMOVDQU %d(R8), Y%d", 64*g+32*part, l)
			} else {
				e.op("VPSRLW $4, Y%d, Y%d", l, l)
			}
			e.op("VPAND Y15, Y%d, Y12", l)
			switch shift := 4 - 2*part; { // moves the two bits of this part to bits 4 and 5
			case shift > 0:
				e.op("VPSLLW $%d, Y%d, Y13", shift, high)
			case shift == 0:
				e.op("VMOVDQA Y%d, Y13", high)
			default:
				e.op("VPSRLW $%d, Y%d, Y13", -shift, high)
			}
			e.op(`
				VPAND blockUpper<>(SB), Y13, Y13
				VPOR Y13, Y12, Y12
				VPMADDUBSW %d(SI), Y12, Y12
				VPSHUFB pair2%d<>(SB), Y10, Y14
				VPMADDWD Y14, Y12, Y12
				VPADDD Y12, Y11, Y11`, 128*g+32*part, part)
		}
	}
}

// dot2Plain writes the products of a plain block to the lanes of Y11.
func dot2Plain(e *emitter, f blockFormat) {
	scalesOf(e, f, 9)
	e.op("VPXOR Y11, Y11, Y11")
	if f.offset > 0 {
		e.op(`
			VPMADDWD (CX), Y9, Y12
			VPSLLD $%d, Y12, Y12
			VPSUBD Y12, Y11, Y11`, f.offset)
	}
	for i := range 8 {
		if i%4 == 0 {
			e.op("VPERM2I128 $%d, Y9, Y9, Y10", i/4*0x11)
		}
		e.op("VMOVDQU %d(R8), Y12", 32*i)
		if f == plainSigned {
			e.op(`
				VMOVDQU %d(SI), Y13
				VPSIGNB Y12, Y13, Y13
				VPABSB Y12, Y12
				VPMADDUBSW Y13, Y12, Y12`, 32*i)
		} else {
			e.op("VPMADDUBSW %d(SI), Y12, Y12", 32*i)
		}
		e.op(`
			VPSHUFB pair2%d<>(SB), Y10, Y14
			VPMADDWD Y14, Y12, Y12
			VPADDD Y12, Y11, Y11`, i%4)
	}
}

// addLanes2 adds the lanes of register z, which belong to the r-th of eight rows, to a tree like the AVX-512 one. Its
// partial results are in registers from first on. After the eighth row, register first has the sums of all rows.
func addLanes2(e *emitter, r, z, first int) {
	level := 0
	for ; r>>level&1 == 1; level++ {
		a := first + level
		lower, upper := "VPUNPCKLDQ", "VPUNPCKHDQ"
		switch level {
		case 1:
			lower, upper = "VPUNPCKLQDQ", "VPUNPCKHQDQ"
		case 2:
			lower, upper = "VPERM2I128 $0x20,", "VPERM2I128 $0x31,"
		}
		e.op("%s Y%d, Y%d, Y12", lower, z, a)
		e.op("%s Y%d, Y%d, Y13", upper, z, a)
		e.op("VPADDD Y12, Y13, Y%d", z)
	}
	e.op("VMOVDQA Y%d, Y%d", z, first+level%3)
}

// halves2 converts the float16 numbers in the lower words of Y1, or in the upper words, to float32 in register z.
func halves2(e *emitter, words string, z int) {
	e.list(`
		VPSHUFB {words}<>(SB), Y1, Y{z}
		VPERMQ $0x08, Y{z}, Y{z}
		VCVTPH2PS X{z}, Y{z}`, "words", words, "z", z)
}

func scale2Block(e *emitter, f blockFormat) {
	if f == mxfp4 {
		e.op(`
			VPAND byte2<>(SB), Y1, Y1
			VMOVDQU two2<>(SB), Y9
			VPCMPGTD Y1, Y9, Y9`) // scale codes 0 and 1 mean the subnormal numbers 2^-128 and 2^-127
		e.op(`
			VMOVDQU subnormal2<>(SB), Y10
			VPSLLVD Y1, Y10, Y10
			VPSUBD one2<>(SB), Y1, Y12
			VPSLLD $23, Y12, Y12
			VPBLENDVB Y9, Y10, Y12, Y12`)
	} else {
		halves2(e, "lowerWords2", 12)
	}
	if f != q80 && f != plain32 {
		e.op(`
			VPBROADCASTD (CX), Y9
			VPSLLD $%d, Y9, Y9
			VPSUBD Y9, Y3, Y3`, f.offset)
	}
	e.op(`
		VCVTDQ2PS Y3, Y3
		VBROADCASTSS (DI), Y9
		VMULPS Y9, Y12, Y12
		VFMADD231PS Y12, Y3, Y0`)
	if f == plain32 {
		halves2(e, "upperWords2", 12)
		e.op(`
			VMULPS Y9, Y12, Y12
			VPBROADCASTD (CX), Y9
			VCVTDQ2PS Y9, Y9
			VFMADD231PS Y12, Y9, Y0`)
	}
}

func scale2Super(e *emitter, f blockFormat) {
	e.op("VCVTDQ2PS Y3, Y3")
	switch {
	case f == plainMins:
		e.op(`
			MOVQ blockArgs_rows(AX), R9
			ADDQ BX, R9
			VMOVDQU blockArgs_offsets(AX), Y12
			VPCMPEQD Y13, Y13, Y13
			VPGATHERDD Y13, %d(R9)(Y12*1), Y10
			VCVTDQ2PS Y6, Y6
			VMULPS Y6, Y10, Y10
			VFMSUB213PS Y10, Y1, Y3`, plainD+4)
	case f.plain():
		e.op("VMULPS Y1, Y3, Y3")
	case f == q4k:
		halves2(e, "lowerWords2", 9)
		halves2(e, "upperWords2", 10)
		e.op(`
			VCVTDQ2PS Y6, Y6
			VMULPS Y6, Y10, Y10
			VFMSUB213PS Y10, Y9, Y3`)
	default:
		halves2(e, "upperWords2", 9)
		e.op("VMULPS Y9, Y3, Y3")
	}
	e.op(`
		VBROADCASTSS (DI), Y9
		VFMADD231PS Y9, Y3, Y0`)
}
