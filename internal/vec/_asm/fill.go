package main

// emitFill writes the kernels that copy rows of weights into a panel of tiles:
// 64 bytes, 32 weights, of every row for each step. A step of the panel holds 32
// rows, two tiles.
//
//	AX arguments   R8 row of w   R9 its place in the panel   R10 rows left
//	SI, DI cursors in both       R11 bytes between steps     R12 steps left
//	K1 what exists of the last, partial step
func emitFill(e *emitter) {
	fillBF16(e)
	fillFP8(e)
}

const panelStep = 2048

// fillRows writes the loop over rows; body processes one row.
func fillRows(e *emitter, body func()) {
	e.op(`
		MOVQ fillArgs_w(AX), R8
		MOVQ fillArgs_panel(AX), R9
		MOVQ fillArgs_rows(AX), R10
		MOVQ fillArgs_mask(AX), R12
		KMOVQ R12, K1`)
	e.loop("row", "R10", func() {
		e.op(`
			MOVQ R8, SI
			MOVQ R9, DI
			MOVQ fillArgs_steps(AX), R12`)
		body()
		e.op(`
			ADDQ fillArgs_ldw(AX), R8
			ADDQ $64, R9`)
	})
	e.ret()
}

// fillSteps writes code that runs step R12 times, and then tail if the mask is not empty.
func fillSteps(e *emitter, step, tail func()) {
	loop, last, done := e.label("loop"), e.label("last"), e.label("done")
	e.op(`
		TESTQ R12, R12
		JZ %s`, last)
	e.at(loop)
	step()
	e.op(`
		DECQ R12
		JNZ %s`, loop)
	e.at(last)
	e.op(`
		CMPQ fillArgs_mask(AX), $0
		JE %s`, done)
	tail()
	e.at(done)
}

func fillBF16(e *emitter) {
	e.function("fillBF16", "fillArgs", "rows of bfloat16; steps of 32 weights.")
	e.op("MOVQ fillArgs_ahead(AX), R11")
	fillRows(e, func() {
		fillSteps(e, func() {
			e.op(`
				VMOVDQU64 (SI), Z0
				PREFETCHT1 (SI)(R11*1)
				VMOVDQU64 Z0, (DI)
				ADDQ $64, SI
				ADDQ $%d, DI`, panelStep)
		}, func() {
			e.op(`
				VMOVDQU16.Z (SI), K1, Z0
				VMOVDQU64 Z0, (DI)`)
		})
	})
}

// fillFP8 writes a kernel that widens codes by tables. The tables include NaN, and the weight's scale if it is a power
// of two.
func fillFP8(e *emitter) {
	e.function("fillFP8", "fillArgs",
		"rows of e4m3 codes under one table; steps of 64 weights: first halves of sixteen, last ones.")
	e.op("MOVQ fillArgs_table(AX), R8")
	scaledTables(e, "R8")
	signBits(e, "R8")
	e.op("MOVQ fillArgs_ahead(AX), R11")
	widen := func() {
		decodeCodes(e, 0, 1, 2)
		e.op(`
			VMOVDQU64 Z0, (DI)
			VMOVDQU64 Z1, %d(DI)`, panelStep)
	}
	fillRows(e, func() {
		fillSteps(e, func() {
			e.op(`
				VMOVDQU64 (SI), Z0
				PREFETCHT1 (SI)(R11*1)`)
			widen()
			e.op(`
				ADDQ $64, SI
				ADDQ $%d, DI`, 2*panelStep)
		}, func() {
			e.op("VMOVDQU8.Z (SI), K1, Z0")
			widen()
		})
	})
}

// scaledTables loads the decoder's registers from tables that include a scale: lower bytes, then upper bytes.
func scaledTables(e *emitter, base string) {
	for i, r := range []int{codeLow, codeLow + 1, codeHigh, codeHigh + 1} {
		e.op("VMOVDQU64 %d(%s), Z%d", 64*i, base, r)
	}
}

// signBits loads the decoder's register of sign bits, which does not depend on the scale.
func signBits(e *emitter, scratch string) {
	e.op(`
		MOVL $0x80, %s
		VPBROADCASTB %s, Z%d`, scratch, scratch, codeSign)
}
