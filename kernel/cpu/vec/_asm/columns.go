package main

// emitColumns writes the kernels that pack rows of x as columns of tiles, two
// neighbours along k in each word, and the one that turns tiles of sums back
// into rows. A float32 is packed as three bfloat16, each what rounding leaves of
// the one before.
func emitColumns(e *emitter) {
	e.raw("")
	e.raw("// Rounds a float32 to bfloat16, halves away from zero, after the mask.")
	splat(e, "roundHalf", 0x8000)
	splat(e, "upperHalf", 0xFFFF0000)
	packParts(e)
	packFour(e)
	packOne(e)
	packPlain(e)
	foldPlain(e)
}

func splat(e *emitter, name string, word uint32) { constant(e, avx512, name, word) }

// packLoop runs body for every step, with masks K1 and K2 over the two halves
// of its 32 elements. SI is the offset in a row, DI the place to write.
func packLoop(e *emitter, body func()) {
	loop, full := e.label("loop"), e.label("full")
	e.op("MOVQ packArgs_columns(AX), DI")
	e.op("MOVQ packArgs_steps(AX), R8")
	e.op("XORL SI, SI")
	e.op("KXNORD K1, K1, K1")
	e.op("KXNORD K2, K2, K2")
	e.at(loop)
	e.op("CMPQ R8, $1")
	e.op("JNE %s", full)
	e.op("MOVQ packArgs_mask(AX), R9")
	e.op("KMOVD R9, K1")
	e.op("SHRQ $16, R9")
	e.op("KMOVD R9, K2")
	e.at(full)
	body()
	e.op("DECQ R8")
	e.op("JNZ %s", loop)
	e.ret()
}

// split packs 32 elements of the row at BX into registers 0 to 2 of pairs. What
// rounds to infinity is cut instead, with no remainder, so that infinity stays
// one and no finite number becomes it; a NaN that cutting would make infinite is
// made quiet first.
func split(e *emitter) {
	const zero = 22
	e.op("VPXORD Z%d, Z%d, Z%d", zero, zero, zero)
	for i := range 2 {
		x, high, middle, low := 4+i, 16+i, 18+i, 20+i
		mask := 3 + i
		e.op("VMOVUPS.Z %d(BX)(SI*1), K%d, Z%d", 64*i, 1+i, x)
		e.op("VPADDD roundHalf<>(SB), Z%d, Z%d", x, high)
		e.op("VPANDD upperHalf<>(SB), Z%d, Z%d", high, high)
		e.op("VFPCLASSPSZ $0x18, Z%d, K%d", high, mask)
		e.op("VSUBPS Z%d, Z%d, K%d, Z%d", zero, x, mask, high)
		e.op("VPANDD upperHalf<>(SB), Z%d, K%d, Z%d", high, mask, high)
		e.op("KNOTW K%d, K%d", mask, mask)
		e.op("VSUBPS.Z Z%d, Z%d, K%d, Z%d", high, x, mask, low)
		e.op("VPADDD roundHalf<>(SB), Z%d, Z%d", low, middle)
		e.op("VPANDD upperHalf<>(SB), Z%d, Z%d", middle, middle)
		e.op("VSUBPS Z%d, Z%d, Z%d", middle, low, low)
	}
	for part := range 3 {
		e.emit(narrowPair(16+2*part, 17+2*part, part))
	}
}

// packParts packs up to sixteen rows: three tiles for every step. Rows wait in
// their tile until all are there; then it is transposed where it lies.
func packParts(e *emitter) {
	e.function("packParts", "packArgs", "up to sixteen rows of float32 to steps of three parts of 16 lines of 16 pairs.")
	row := e.label("row")
	packLoop(e, func() {
		e.op("MOVQ packArgs_count(AX), R10")
		e.op("LEAQ packArgs_rows(AX), R11")
		e.op("MOVQ DI, R12")
		e.at(row)
		e.op("MOVQ (R11), BX")
		split(e)
		for part := range 3 {
			e.op("VMOVDQU64 Z%d, %d(R12)", part, 1024*part)
		}
		e.op("ADDQ $8, R11")
		e.op("ADDQ $64, R12")
		e.op("DECQ R10")
		e.op("JNZ %s", row)
		for part := range 3 {
			for r := range 16 {
				e.op("VMOVDQU64 %d(DI), Z%d", 1024*part+64*r, r)
			}
			for c, r := range transpose16(e) {
				e.op("VMOVDQU64 Z%d, %d(DI)", r, 1024*part+64*c)
			}
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $%d, DI", 3*1024)
	})
}

// packFour packs four rows: a line of a tile is four pairs.
func packFour(e *emitter) {
	e.function("packFour", "packArgs", "four rows of float32 to steps of three parts of 16 lines of four pairs.")
	kept := [12]int{6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 23, 24} // three parts of each row
	packLoop(e, func() {
		for r := range 4 {
			e.op("MOVQ packArgs_rows+%d(AX), BX", 8*r)
			split(e)
			for part := range 3 {
				e.op("VMOVDQA64 Z%d, Z%d", part, kept[3*r+part])
			}
		}
		for part := range 3 {
			a, b, c, d := kept[part], kept[3+part], kept[6+part], kept[9+part]
			// Lane l of register j of four is line 4l+j.
			for i, op := range [2]string{"VUNPCKLPS", "VUNPCKHPS"} {
				e.op("%s Z%d, Z%d, Z%d", op, b, a, 16+i)
				e.op("%s Z%d, Z%d, Z%d", op, d, c, 18+i)
			}
			for j, line := range [4]int{20, 21, 22, 25} {
				op := [2]string{"VUNPCKLPD", "VUNPCKHPD"}[j%2]
				e.op("%s Z%d, Z%d, Z%d", op, 18+j/2, 16+j/2, line)
			}
			// Lanes 0 and 1 of two registers each, then 2 and 3.
			for i, lanes := range [2]int{0x44, 0xEE} {
				e.op("VSHUFF32X4 $%#x, Z21, Z20, Z16", lanes)
				e.op("VSHUFF32X4 $%#x, Z25, Z22, Z17", lanes)
				e.op("VSHUFF32X4 $0x88, Z17, Z16, Z18")
				e.op("VSHUFF32X4 $0xDD, Z17, Z16, Z19")
				e.op("VMOVDQU64 Z18, %d(DI)", 256*part+128*i)
				e.op("VMOVDQU64 Z19, %d(DI)", 256*part+128*i+64)
			}
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $768, DI")
	})
}

// packOne packs a single row: a line of a tile is one pair.
func packOne(e *emitter) {
	e.function("packOne", "packArgs", "one row of float32 to steps of three parts of 16 lines of a pair.")
	e.op("MOVQ packArgs_rows(AX), BX")
	packLoop(e, func() {
		split(e)
		for part := range 3 {
			e.op("VMOVDQU64 Z%d, %d(DI)", part, 64*part)
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $192, DI")
	})
}

// packPlain packs sixteen rows that are bfloat16 already.
func packPlain(e *emitter) {
	e.function("packPlain", "packArgs", "sixteen rows of bfloat16 to steps of 16 lines of 16 pairs.")
	packLoop(e, func() {
		for r := range 16 {
			e.op("MOVQ packArgs_rows+%d(AX), BX", 8*r)
			e.op("VMOVDQU16.Z (BX)(SI*1), K1, Z%d", r)
		}
		for c, r := range transpose16(e) {
			e.op("VMOVDQU64 Z%d, %d(DI)", r, 64*c)
		}
		e.op("ADDQ $64, SI")
		e.op("ADDQ $1024, DI")
	})
}

// transpose16 turns registers 0 to 15, rows of 16 words, into columns and
// returns where each is. Registers 16 to 31 are used.
func transpose16(e *emitter) (column [16]int) {
	// Words of two rows, then of four, so that lane l of register 4q+j holds
	// column 4l+j of rows 4q to 4q+3.
	for i := range 8 {
		e.op("VUNPCKLPS Z%d, Z%d, Z%d", 2*i+1, 2*i, 16+2*i)
		e.op("VUNPCKHPS Z%d, Z%d, Z%d", 2*i+1, 2*i, 16+2*i+1)
	}
	for q := range 4 {
		t := 16 + 4*q
		for j := range 4 {
			op := [2]string{"VUNPCKLPD", "VUNPCKHPD"}[j%2]
			e.op("%s Z%d, Z%d, Z%d", op, t+2+j/2, t+j/2, 4*q+j)
		}
	}
	// Lanes of two quarters: even ones, odd ones; then of all four.
	for j := range 4 {
		for half := range 2 {
			a, b := 8*half+j, 8*half+4+j
			e.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", b, a, 16+4*j+half)
			e.op("VSHUFF32X4 $0xDD, Z%d, Z%d, Z%d", b, a, 16+4*j+2+half)
		}
	}
	for j := range 4 {
		for odd := range 2 {
			a := 16 + 4*j + 2*odd
			e.op("VSHUFF32X4 $0x88, Z%d, Z%d, Z%d", a+1, a, 4*j+2*odd)
			e.op("VSHUFF32X4 $0xDD, Z%d, Z%d, Z%d", a+1, a, 4*j+2*odd+1)
			column[4*odd+j] = 4*j + 2*odd
			column[4*(odd+2)+j] = 4*j + 2*odd + 1
		}
	}
	return column
}

// foldLoop runs body for every tile of sums at SI; rows of y begin at DI, R9
// bytes apart, and K1 holds the columns that exist. R13 is the rows left.
func foldLoop(e *emitter, body func()) {
	loop := e.label("loop")
	e.op("MOVQ foldArgs_sums(AX), SI")
	e.op("MOVQ foldArgs_y(AX), DI")
	e.op("MOVQ foldArgs_ldy(AX), R9")
	e.op("MOVQ foldArgs_tiles(AX), R8")
	e.op("MOVQ foldArgs_mask(AX), R10")
	e.op("KMOVW R10, K1")
	e.at(loop)
	body()
	e.op("ADDQ foldArgs_nextSums(AX), SI")
	e.op("ADDQ foldArgs_nextY(AX), DI")
	e.op("DECQ R8")
	e.op("JNZ %s", loop)
	e.ret()
}

// storeRows writes registers as rows of y, as many as there are, or adds them.
func storeRows(e *emitter, regs []int) {
	add, done := e.label("add"), e.label("stored")
	e.op("MOVQ foldArgs_rows(AX), R13")
	e.op("MOVQ DI, R11")
	e.op("CMPQ foldArgs_add(AX), $0")
	e.op("JNE %s", add)
	for _, r := range regs {
		e.op("VMOVUPS Z%d, K1, (R11)", r)
		e.op("ADDQ R9, R11")
		e.op("DECQ R13")
		e.op("JZ %s", done)
	}
	e.op("JMP %s", done)
	e.at(add)
	for _, r := range regs {
		e.op("VADDPS.Z (R11), Z%d, K1, Z%d", r, r)
		e.op("VMOVUPS Z%d, K1, (R11)", r)
		e.op("ADDQ R9, R11")
		e.op("DECQ R13")
		e.op("JZ %s", done)
	}
	e.at(done)
}

// foldPlain turns tiles of sums of sixteen columns into rows.
func foldPlain(e *emitter) {
	e.function("foldPlain", "foldArgs", "tiles of 16 x 16 sums to sixteen rows of 16.")
	foldLoop(e, func() {
		for r := range 16 {
			e.op("VMOVUPS %d(SI), Z%d", 64*r, r)
		}
		column := transpose16(e)
		storeRows(e, column[:])
	})
}
