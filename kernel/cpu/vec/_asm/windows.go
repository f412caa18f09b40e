package main

// emitWindows writes the kernel that turns the e8m0 scales of rows of e2m1 weights into windows: of the scales up to a
// largest one that is given for every row, the four largest powers of two. A window is a byte for every scale, 16 times
// its place and 15, or 0 for one that is not in it. The exponent of a row is looked up by the largest scale in the
// window. Rows with scales below it are marked.
//
//	AX arguments   R8 row of scales   DI row of windows   R10 rows left   R13 exponents   R14 marks
//	R15 exponents by scale   SI, R11 cursors   R12 scales left   R9, BX scratch   DX bytes to fetch ahead
//	CX largest scales   K1 scales that exist   K4 those up to the largest   K3 those below the window
func (e *emitter) emitWindows() {
	const largest, most, places, limit = 26, 28, 29, 27
	table := make([]byte, 64)
	for i := range table {
		if i%16 < 4 {
			table[i] = byte(63 - 16*(i%16))
		}
	}
	e.table("windowPlaces", table)
	e.function("windowsFP4", "windowArgs", "windows of rows of e8m0 scales.")
	e.op(`
		MOVQ windowArgs_scale(AX), R8
		MOVQ windowArgs_windows(AX), DI
		MOVQ windowArgs_rows(AX), R10
		MOVQ windowArgs_exponents(AX), R13
		MOVQ windowArgs_below(AX), R14
		MOVQ windowArgs_table(AX), R15
		MOVQ windowArgs_largest(AX), CX
		MOVQ windowArgs_ahead(AX), DX
		VMOVDQU64 windowPlaces<>(SB), Z29`)
	for _, c := range []struct{ value, reg int }{{15, most}, {3, limit}} {
		e.op("MOVL $%d, R9", c.value)
		e.op("VPBROADCASTB R9, Z%d", c.reg)
	}
	each := func(body func()) {
		loop, whole := e.label("loop"), e.label("whole")
		e.op(`
			MOVQ R8, SI
			MOVQ windowArgs_count(AX), R12
			KXNORQ K1, K1, K1`)
		e.at(loop)
		e.op("CMPQ R12, $64")
		e.op("JGE %s", whole)
		e.op(`
			MOVQ $-1, R9
			BZHIQ R12, R9, R9
			KMOVQ R9, K1`)
		e.at(whole)
		e.op("VMOVDQU8.Z (SI), K1, Z0")
		e.op("VPCMPUB $2, Z%d, Z0, K1, K4", largest)
		body()
		e.op("ADDQ $64, SI")
		e.op("SUBQ $64, R12")
		e.op("JGT %s", loop)
	}
	e.loop("row", "R10", func() {
		e.op("VPXORD Z1, Z1, Z1")
		e.op("VPBROADCASTB (CX), Z%d", largest)
		each(func() {
			e.op("PREFETCHT1 (SI)(DX*1)")
			e.op("VPMAXUB Z0, Z1, K4, Z1")
		})
		e.note("the largest is the complement of the least complement")
		e.op(`
			VEXTRACTI64X4 $1, Z1, Y2
			VPMAXUB Y2, Y1, Y1
			VEXTRACTI128 $1, Y1, X2
			VPMAXUB X2, X1, X1
			VPCMPEQD X2, X2, X2
			VPXOR X2, X1, X1
			VPSRLW $8, X1, X2
			VPMINUB X2, X1, X1
			VPHMINPOSUW X1, X1
			VMOVD X1, R9
			MOVBLZX R9, R9
			XORL $255, R9
			MOVL (R15)(R9*4), BX
			MOVL BX, (R13)
			VPBROADCASTB R9, Z3
			KXORQ K3, K3, K3
			MOVQ DI, R11`)
		each(func() {
			e.op("VPSUBB Z0, Z3, Z4")
			e.op("VPMINUB Z%d, Z4, Z5", most)
			e.op("VPSHUFB.Z Z5, Z%d, K4, Z5", places)
			e.op("VMOVDQU8 Z5, K1, (R11)")
			e.op("VPCMPUB $6, Z%d, Z4, K4, K2", limit)
			e.op("KORQ K2, K3, K3")
			e.op("ADDQ $64, R11")
		})
		e.op(`
			KMOVQ K3, R9
			TESTQ R9, R9
			SETNE (R14)
			INCQ R14
			INCQ CX
			ADDQ $4, R13
			ADDQ windowArgs_ldScale(AX), R8
			ADDQ windowArgs_ldWindows(AX), DI`)
	})
	e.ret()
}
