package main

// emitFill writes the kernels that bring rows of weights into a panel of tiles:
// 64 bytes, 32 weights, of every row for each step. A step of the panel has
// room for 32 rows, two tiles.
//
//	AX arguments   R8 row of w   R9 its place in the panel   R10 rows left
//	SI, DI cursors in both       R11 bytes between steps     R12 steps left
//	K1 what exists of the last, partial step
func emitFill(e *emitter) {
	fillBF16(e)
	fillFP8(e)
	fillFP4(e)
}

const panelStep = 2048

// fillRows wraps body, which handles one row, in the loop over rows.
func fillRows(e *emitter, body func()) {
	e.op("MOVQ fillArgs_w(AX), R8")
	e.op("MOVQ fillArgs_panel(AX), R9")
	e.op("MOVQ fillArgs_rows(AX), R10")
	e.op("MOVQ fillArgs_mask(AX), R12")
	e.op("KMOVQ R12, K1")
	row := e.label("row")
	e.at(row)
	e.op("MOVQ R8, SI")
	e.op("MOVQ R9, DI")
	e.op("MOVQ fillArgs_steps(AX), R12")
	body()
	e.op("ADDQ fillArgs_ldw(AX), R8")
	e.op("ADDQ $64, R9")
	e.op("DECQ R10")
	e.op("JNZ %s", row)
	e.ret()
}

// fillSteps runs step R12 times and tail once if the mask says so.
func fillSteps(e *emitter, step, tail func()) {
	loop, last, done := e.label("loop"), e.label("last"), e.label("done")
	e.op("TESTQ R12, R12")
	e.op("JZ %s", last)
	e.at(loop)
	step()
	e.op("DECQ R12")
	e.op("JNZ %s", loop)
	e.at(last)
	e.op("CMPQ fillArgs_mask(AX), $0")
	e.op("JE %s", done)
	tail()
	e.at(done)
}

func fillBF16(e *emitter) {
	e.function("fillBF16", "fillArgs", "rows of bfloat16; steps of 32 weights.")
	e.op("MOVQ fillArgs_ahead(AX), R11")
	fillRows(e, func() {
		fillSteps(e, func() {
			e.op("VMOVDQU64 (SI), Z0")
			e.op("PREFETCHT1 (SI)(R11*1)")
			e.op("VMOVDQU64 Z0, (DI)")
			e.op("ADDQ $64, SI")
			e.op("ADDQ $%d, DI", panelStep)
		}, func() {
			e.op("VMOVDQU16.Z (SI), K1, Z0")
			e.op("VMOVDQU64 Z0, (DI)")
		})
	})
}

// fillFP8 widens codes by tables that hold the weight's scale where that is a
// power of two, and NaN.
func fillFP8(e *emitter) {
	e.function("fillFP8", "fillArgs", "rows of e4m3 codes under one table; steps of 64 weights: even ones, odd ones.")
	e.op("MOVQ fillArgs_table(AX), R8")
	scaledTables(e, "R8")
	decoderConstants(e, "R8")
	e.op("MOVQ fillArgs_ahead(AX), R11")
	widen := func() {
		decodeEvenOdd(e, 0, 1, 2)
		e.op("VMOVDQU64 Z0, (DI)")
		e.op("VMOVDQU64 Z1, %d(DI)", panelStep)
	}
	fillRows(e, func() {
		fillSteps(e, func() {
			e.op("VMOVDQU64 (SI), Z0")
			e.op("PREFETCHT1 (SI)(R11*1)")
			widen()
			e.op("ADDQ $64, SI")
			e.op("ADDQ $%d, DI", 2*panelStep)
		}, func() {
			e.op("VMOVDQU8.Z (SI), K1, Z0")
			widen()
		})
	})
}

// scaledTables loads the decoder's registers from tables with a scale in them:
// lower bytes, upper bytes.
func scaledTables(e *emitter, base string) {
	for i, r := range []int{codeLow, codeLow + 1, codeHigh, codeHigh + 1} {
		e.op("VMOVDQU64 %d(%s), Z%d", 64*i, base, r)
	}
}

// decoderConstants loads what does not depend on the scale.
func decoderConstants(e *emitter, scratch string) {
	e.op("MOVL $0xFF, %s", scratch)
	e.op("VPBROADCASTW %s, Z%d", scratch, lowBytes)
	e.op("MOVL $0x80, %s", scratch)
	e.op("VPBROADCASTB %s, Z%d", scratch, codeSign)
}

// fillFP4 spreads the codes of 16 bytes over 32 words, looks their bfloat16 up
// and adds the group's exponent to what is not zero.
//
//	DX scales of a row   BX scale of this step   R11 exponent   R13 bytes to fetch ahead
func fillFP4(e *emitter) {
	const values, nibbles, magnitude = 28, 29, 30
	e.function("fillFP4", "fillArgs", "rows of pairs of e2m1 codes with an e8m0 scale for each step of 32 weights.")
	e.op("MOVQ fillArgs_table(AX), R8")
	e.op("VMOVDQU64 (R8), Z%d", values)
	e.op("MOVL $0x000F000F, R8")
	e.op("VPBROADCASTD R8, Z%d", nibbles)
	e.op("MOVL $0x00070007, R8")
	e.op("VPBROADCASTD R8, Z%d", magnitude)
	e.op("MOVQ fillArgs_scale(AX), DX")
	e.op("MOVQ fillArgs_ahead(AX), R13")
	widen := func() {
		e.op("MOVBLZX (BX), R11")
		e.op("SUBL $127, R11")
		e.op("SHLL $7, R11")
		e.op("VPBROADCASTW R11, Z2")
		e.op("VPSLLD $12, Z0, Z1")
		e.note("(codes or codes << 12) and nibbles")
		e.op("VPTERNLOGD $0xC8, Z0, Z%d, Z1", nibbles)
		e.op("VPERMW Z%d, Z1, Z0", values)
		e.op("VPTESTMW Z%d, Z1, K2", magnitude)
		e.op("VPADDW Z2, Z0, K2, Z0")
		e.op("VMOVDQU64 Z0, (DI)")
	}
	fillRows(e, func() {
		e.op("MOVQ DX, BX")
		fillSteps(e, func() {
			e.op("VPMOVZXBD (SI), Z0")
			e.op("PREFETCHT1 (SI)(R13*1)")
			widen()
			e.op("ADDQ $16, SI")
			e.op("INCQ BX")
			e.op("ADDQ $%d, DI", panelStep)
		}, func() {
			e.op("VMOVDQU8.Z (SI), K1, X0")
			e.op("VPMOVZXBD X0, Z0")
			widen()
		})
		e.op("ADDQ fillArgs_ldScale(AX), DX")
	})
}
