package main

// emitRowFP4 writes the kernel for one row of x in two planes (planes.go) by rows of e2m1 codes that come from memory,
// whole blocks of 128 columns. It has no tiles: dot products of bytes in registers take fewer operations for a single
// row, and rows are read front to back. Memory is fastest in this order. There are eight cursors; each reads
// consecutive rows and prefetches the lines one kilobyte ahead.
//
// Codes and windows are those of streamfp4.go. The instruction multiplies bytes without a sign by bytes with one. So a
// table of 64 bytes has the values of streamfp4.go plus 96, and sums begin at -96 times the sum of x. Sums are
// integers: their bits are those of the tiles.
//
//	AX arguments   R9 w      CX, R10 one, three strides of the cursors
//	BX windows     R8, DX one, three strides of their cursors
//	R12 address to prefetch  R13, R14 one, three strides between its cursors   R15 lines left until it is elsewhere
//	DI x           R11 blocks left           SI fifth cursor, scratch
//	Z0 to Z15 sums of the planes of each cursor   Z16, Z17 where they begin   Z18 where each cursor's sums go
//	Z20 to Z23 x of a block, planes of even and of odd columns
//	Z29 which window goes to each byte, Z30 the bits of a code, Z31 table of values
func emitRowFP4(e *emitter) {
	const cursors, begin, places, x = 8, 16, 18, 20
	values := windowTable()
	for i := range values {
		values[i] += rowOffset
	}
	table(e, "nibbleValuesRow", values)
	e.function("rowFP4", "rowArgs", "one row of x in two planes by rows of e2m1 codes, whole blocks of 128 columns.")
	e.op(`
		MOVQ rowArgs_w(AX), R9
		MOVQ rowArgs_run(AX), CX
		LEAQ (CX)(CX*2), R10
		MOVQ rowArgs_windows(AX), BX
		MOVQ rowArgs_runWindows(AX), R8
		LEAQ (R8)(R8*2), DX
		MOVQ rowArgs_ahead(AX), R12
		MOVQ CX, R13
		MOVQ R10, R14
		MOVQ rowArgs_leftAhead(AX), R15
		VMOVDQU64 rowArgs_places(AX), Z18
		VMOVDQU64 windowOfLane<>(SB), Z%d
		VMOVDQU64 nibbleValuesRow<>(SB), Z%d
		MOVL $%d, SI
		VPBROADCASTB SI, Z0`, windowLane, nibbleValues, rowOffset)
	for i := range 4 {
		e.op("VPXORD Z%d, Z%d, Z%d", 1+i, 1+i, 1+i)
	}
	e.op(`
		MOVQ rowArgs_x(AX), DI
		MOVQ rowArgs_blocks(AX), R11`)
	e.loop("offset", "R11", func() {
		for i := range 4 {
			e.op("VPDPBUSD %d(DI), Z0, Z%d", 64*i, 1+i)
		}
		e.op("ADDQ $256, DI")
	})
	e.op("VPXORD Z0, Z0, Z0")
	for plane := range 2 {
		e.op("VPADDD Z%d, Z%d, Z%d", 1+plane, 3+plane, 1+plane)
		e.op("VPSUBD Z%d, Z0, Z%d", 1+plane, begin+plane)
	}
	e.op(`
		MOVL $15, SI
		VPBROADCASTB SI, Z%d`, nibbleBits)
	e.loop("row", "rowArgs_rows(AX)", func() {
		e.op(`
			MOVQ rowArgs_x(AX), DI
			MOVQ rowArgs_blocks(AX), R11`)
		for i := range 2 * cursors {
			e.op("VMOVDQA64 Z%d, Z%d", begin+i%2, i)
		}
		e.loop("block", "R11", func() {
			for i := range 4 {
				e.op("VMOVDQU64 %d(DI), Z%d", 64*i, x+i)
			}
			e.op("ADDQ $256, DI")
			for c := range cursors {
				rowCodes(e, c, x)
			}
			e.op("MOVQ rowArgs_aheadScales(AX), SI") // a line of scales belongs to sixteen lines of weights
			e.op(`
				PREFETCHT1 (SI)
				ADDQ $32, rowArgs_aheadScales(AX)
				ADDQ $64, R9
				ADDQ $4, BX
				ADDQ $64, R12`)
			same := e.label("same")
			e.op(`
				DECQ R15
				JNZ %s
				MOVQ rowArgs_next(AX), R12
				MOVQ rowArgs_runNext(AX), R13
				LEAQ (R13)(R13*2), R14`, same)
			e.at(same)
		})
		e.op(`
			ADDQ rowArgs_nextW(AX), R9
			ADDQ rowArgs_nextW(AX), R12
			MOVQ rowArgs_sums(AX), SI
			ADDQ $8, rowArgs_sums(AX)
			KXNORB K1, K1, K1`)
		addAcross(e)
		e.op("VPSCATTERQQ Z0, K1, (SI)(Z%d*1)", places)
	})
	e.ret()
}

// rowOffset is added to values, so that the smallest value of windowTable becomes zero.
const rowOffset = 96

// rowCodes decodes 64 bytes of cursor c, multiplies them by x, and prefetches later bytes.
func rowCodes(e *emitter, c, x int) {
	w, windows, ahead := "R9", "BX", "R12"
	if c >= 4 {
		w, windows, ahead = "SI", "SI", "SI"
	}
	fifth := func(base, one string) {
		if c >= 4 {
			e.op("LEAQ (%s)(%s*4), SI", base, one)
		}
	}
	even := 24 + 2*(c%2)
	odd, window := even+1, [2]int{28, 19}[c%2]
	fifth("R9", "CX")
	e.op("VMOVDQU64 %s, Z%d", spaced(w, "CX", "R10", "", 0, c%4), even)
	fifth("BX", "R8")
	decodeNibbles(e, spaced(windows, "R8", "DX", "", 0, c%4), even, odd, window)
	for i := range 4 {
		e.op("VPDPBUSD Z%d, Z%d, Z%d", x+i, even+i/2, 2*c+i%2)
	}
	fifth("R12", "R13")
	e.op("PREFETCHT1 %s", spaced(ahead, "R13", "R14", "", 0, c%4))
}

// addAcross sets lane i of register 0 to the sum of the lanes of register i, for sixteen registers.
func addAcross(e *emitter) {
	const t = 24
	pairs := func(n, apart int, low, high string) {
		for i := 0; i < n; i++ {
			a, b := 2*i*apart, (2*i+1)*apart
			e.op("%s Z%d, Z%d, Z%d", low, b, a, t)
			e.op("%s Z%d, Z%d, Z%d", high, b, a, t+1)
			e.op("VPADDD Z%d, Z%d, Z%d", t, t+1, a)
		}
	}
	pairs(8, 1, "VPUNPCKLDQ", "VPUNPCKHDQ")
	pairs(4, 2, "VPUNPCKLQDQ", "VPUNPCKHQDQ")
	pairs(2, 4, "VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,")
	pairs(1, 8, "VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,")
}
