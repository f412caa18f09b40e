package main

// emitWindows writes the kernel that turns the e8m0 scales of rows of e2m1 weights into windows: of the scales up to a
// largest one that is given for every row, the four largest powers of two. A window is a byte for every scale, 16 times
// its place and 15, or 0 for one that is not in it. The exponent of a row is looked up by the largest scale in the
// window. Rows with scales below it are marked.
//
//	AX arguments   R8 row of scales   DI row of windows   R10 rows left   R13 exponents   R14 marks
//	R15 exponents by scale   SI, R11 cursors   R12 scales left   R9, BX scratch
//	CX largest scales   K1 scales that exist   K4 those up to the largest   K3 those below the window
//
// Rows of 64 and 128 scales, weights of 2048 and 4096 columns, have loops of their own, which keep the scales in
// registers: one for the first window of rows, one for those below.
func emitWindows(e *emitter) {
	table(e, "windowPlaces", placesOfWindows())
	e.function("windowsFP4", "windowArgs", "windows of rows of e8m0 scales.")
	e.op(`
		MOVQ windowArgs_scale(AX), R8
		MOVQ windowArgs_windows(AX), DI
		MOVQ windowArgs_rows(AX), R10
		MOVQ windowArgs_exponents(AX), R13
		MOVQ windowArgs_below(AX), R14
		MOVQ windowArgs_table(AX), R15
		MOVQ windowArgs_largest(AX), CX
		VMOVDQU64 windowPlaces<>(SB), Z29`)
	for _, c := range []struct{ value, reg int }{{15, windowMost}, {3, windowLimit}} {
		e.op(`
			MOVL $%d, R9
			VPBROADCASTB R9, Z%d`, c.value, c.reg)
	}
	for _, vectors := range []int{1, 2} {
		windowsOf(e, vectors)
	}
	each := func(body func()) {
		loop, whole := e.label("loop"), e.label("whole")
		e.op(`
			MOVQ R8, SI
			MOVQ windowArgs_count(AX), R12
			KXNORQ K1, K1, K1`)
		e.at(loop)
		e.op(`
			CMPQ R12, $64
			JGE %s
			MOVQ $-1, R9
			BZHIQ R12, R9, R9
			KMOVQ R9, K1`, whole)
		e.at(whole)
		e.op(`
			VMOVDQU8.Z (SI), K1, Z0
			VPCMPUB $2, Z%d, Z0, K1, K4`, windowLargest)
		body()
		e.op(`
			ADDQ $64, SI
			SUBQ $64, R12
			JGT %s`, loop)
	}
	e.loop("row", "R10", func() {
		e.op(`
			VPXORD Z1, Z1, Z1
			VPBROADCASTB (CX), Z%d`, windowLargest)
		each(func() { e.op("VPMAXUB Z0, Z1, K4, Z1") })
		windowTop(e)
		e.op(`
			KXORQ K3, K3, K3
			MOVQ DI, R11`)
		each(func() {
			e.op(`
				VPSUBB Z0, Z3, Z4
				VPMINUB Z%d, Z4, Z5
				VPSHUFB.Z Z5, Z%d, K4, Z5
				VMOVDQU8 Z5, K1, (R11)
				VPCMPUB $6, Z%d, Z4, K4, K2
				KORQ K2, K3, K3
				ADDQ $64, R11`, windowMost, windowPlaces, windowLimit)
		})
		e.op("KORTESTQ K3, K3")
		nextWindow(e)
	})
	e.ret()
}

// Registers of constants and of a row.
const (
	windowLargest = 26 // largest scale of the row
	windowLimit   = 27
	windowMost    = 28
	windowPlaces  = 29
)

// windowsOf processes all rows if each has the given number of whole registers of scales. In a first window no scale is
// above the largest.
func windowsOf(e *emitter, vectors int) {
	other, below := e.label("other"), e.label("below")
	e.op(`
		CMPQ windowArgs_count(AX), $%d
		JNE %s
		CMPQ windowArgs_first(AX), $0
		JEQ %s`, 64*vectors, other, below)
	windowRows(e, vectors, true)
	e.at(below)
	windowRows(e, vectors, false)
	e.at(other)
}

// windowRows writes the loop over rows, whose scales are in registers 6 and 7.
func windowRows(e *emitter, vectors int, first bool) {
	e.loop("whole", "R10", func() {
		if !first {
			e.op("VPBROADCASTB (CX), Z%d", windowLargest)
		}
		for v := range vectors {
			scales, upTo := 6+v, 10+v
			e.op("VMOVDQU64 %d(R8), Z%d", 64*v, scales)
			if !first {
				e.op("VPCMPUB $2, Z%d, Z%d, K%d", windowLargest, scales, 4+v)
				e.op("VMOVDQU8.Z Z%d, K%d, Z%d", scales, 4+v, upTo)
			}
		}
		from := 10
		if first {
			from = 6
		}
		if vectors == 2 {
			e.op("VPMAXUB Z%d, Z%d, Z1", from+1, from)
		} else {
			e.op("VMOVDQA64 Z%d, Z1", from)
		}
		windowTop(e)
		for v := range vectors {
			distance := 4 + 8*v
			e.op("VPSUBB Z%d, Z3, Z%d", 6+v, distance)
			e.op("VPMINUB Z%d, Z%d, Z5", windowMost, distance)
			if first {
				e.op("VPSHUFB Z5, Z%d, Z5", windowPlaces)
			} else {
				e.op("VPSHUFB.Z Z5, Z%d, K%d, Z5", windowPlaces, 4+v)
				e.op("VPCMPUB $6, Z%d, Z%d, K%d, K%d", windowLimit, distance, 4+v, 2+v)
			}
			e.op("VMOVDQU64 Z5, %d(DI)", 64*v)
		}
		if first {
			if vectors == 2 {
				e.op("VPMAXUB Z12, Z4, Z4")
			}
			e.op(`
				VPCMPUB $6, Z%d, Z4, K2
				KORTESTQ K2, K2`, windowLimit)
		} else {
			e.op("KORTESTQ K2, K%d", 1+vectors)
		}
		nextWindow(e)
	})
	e.ret()
}

// windowTop computes the exponent of the row and a register of the largest scale, Z3, from the largest scales in
// register Z1.
func windowTop(e *emitter) {
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
		VPBROADCASTB R9, Z3`)
}

// nextWindow marks a row if the flags show that it has scales below its window, and advances to the next row.
func nextWindow(e *emitter) {
	e.op(`
		SETNE (R14)
		INCQ R14
		INCQ CX
		ADDQ $4, R13
		ADDQ windowArgs_ldScale(AX), R8
		ADDQ windowArgs_ldWindows(AX), DI`)
}

// placesOfWindows returns the table of windows, indexed by the number of powers of two between a scale and the largest
// scale, repeated four times.
func placesOfWindows() []byte {
	table := make([]byte, 64)
	for i := range table {
		if i%16 < 4 {
			table[i] = byte(63 - 16*(i%16))
		}
	}
	return table
}
