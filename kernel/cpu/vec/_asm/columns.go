package main

import "fmt"

// emitColumns writes the kernels that pack rows of x as columns of tiles, two
// neighbours along k in each word, and the one that turns tiles of sums back
// into rows. A float32 is packed as two bfloat16, the second what rounding to the
// first leaves.
func emitColumns(e *emitter) {
	e.raw("")
	e.raw("// Rounds a float32 to bfloat16, halves away from zero, after the mask.")
	splat(e, "roundHalf", 0x8000)
	splat(e, "upperHalf", 0xFFFF0000)
	packSixteen(e)
	packFew(e, "packEight", 8)
	packFew(e, "packFour", 4)
	packOne(e)
	packPlain(e)
	fold(e, "foldPlain", "tiles of 16 x 16 sums to sixteen rows of 16.", func(int) {})
	fold(e, "foldSixteen", "pairs of tiles of 16 x 16 sums, added, to sixteen rows of 16.", func(r int) {
		e.op("VADDPS %d(SI), Z%d, Z%d", 1024+64*r, r, r)
	})
	for _, rows := range []int{8, 4} {
		name := map[int]string{8: "foldEight", 4: "foldFour"}[rows]
		fold(e, name, fmt.Sprintf("tiles of 16 lines of %d sums and as many to be added to them, to rows of 16.", rows), func(r int) {
			e.op("VALIGND $%d, Z%d, Z%d, Z16", rows, r, r)
			e.op("VADDPS Z16, Z%d, Z%d", r, r)
		})
	}
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

// split packs 32 elements of the row at BX as pairs into registers high and low.
// It uses registers 16 to 21. What rounds to infinity is cut instead, with no
// remainder, so that infinity stays one and no finite number becomes it; a NaN
// that cutting would make infinite is made quiet first.
func split(e *emitter, high, low int) {
	const zero = 16
	e.op("VPXORD Z%d, Z%d, Z%d", zero, zero, zero)
	for i := range 2 {
		top, rest := 17+i, 19+i
		mask := 3 + i
		const x = 21
		e.op("VMOVUPS.Z %d(BX)(SI*1), K%d, Z%d", 64*i, 1+i, x)
		e.op("VPADDD roundHalf<>(SB), Z%d, Z%d", x, top)
		e.op("VPANDD upperHalf<>(SB), Z%d, Z%d", top, top)
		e.op("VFPCLASSPSZ $0x18, Z%d, K%d", top, mask)
		e.op("VSUBPS Z%d, Z%d, K%d, Z%d", zero, x, mask, top)
		e.op("VPANDD upperHalf<>(SB), Z%d, K%d, Z%d", top, mask, top)
		e.op("KNOTW K%d, K%d", mask, mask)
		e.op("VSUBPS.Z Z%d, Z%d, K%d, Z%d", top, x, mask, rest)
	}
	e.emit(narrowPair(17, 18, high))
	e.emit(narrowPair(19, 20, low))
}

// packSixteen packs up to sixteen rows: two tiles for every step. Rows wait in
// their tile until all are there; then it is transposed where it lies.
func packSixteen(e *emitter) {
	e.function("packSixteen", "packArgs", "up to sixteen rows of float32 to steps of two parts of 16 lines of 16 pairs.")
	row := e.label("row")
	packLoop(e, func() {
		e.op("MOVQ packArgs_count(AX), R10")
		e.op("LEAQ packArgs_rows(AX), R11")
		e.op("MOVQ DI, R12")
		e.at(row)
		e.op("MOVQ (R11), BX")
		split(e, 0, 1)
		for part := range 2 {
			e.op("VMOVDQU64 Z%d, %d(R12)", part, 1024*part)
		}
		e.op("ADDQ $8, R11")
		e.op("ADDQ $64, R12")
		e.op("DECQ R10")
		e.op("JNZ %s", row)
		for part := range 2 {
			for r := range 16 {
				e.op("VMOVDQU64 %d(DI), Z%d", 1024*part+64*r, r)
			}
			for c, r := range transpose16(e) {
				e.op("VMOVDQU64 Z%d, %d(DI)", r, 1024*part+64*c)
			}
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $%d, DI", 2*1024)
	})
}

// packFew packs eight rows or four: a line of a tile is a pair of every row's
// first part, then of every row's second.
func packFew(e *emitter, name string, rows int) {
	e.function(name, "packArgs", fmt.Sprintf("%d rows of float32 to steps of 16 lines of %d pairs.", rows, 2*rows))
	lane := map[int]string{8: "Z", 4: "Y"}[rows]
	packLoop(e, func() {
		for r := range rows {
			e.op("MOVQ packArgs_rows+%d(AX), BX", 8*r)
			split(e, r, rows+r)
		}
		for c, r := range transpose16(e) {
			e.op("VMOVDQU64 %s%d, %d(DI)", lane, r, 8*rows*c)
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $%d, DI", 16*8*rows)
	})
}

// packOne packs a single row: a line of a tile is a pair of each part.
func packOne(e *emitter) {
	for half, name := range []string{"firstLines", "lastLines"} {
		data := make([]byte, 64)
		for i := range 16 {
			data[4*i] = byte(8*half + i/2 + i%2*16)
		}
		table(e, name, data)
	}
	e.function("packOne", "packArgs", "one row of float32 to steps of 16 lines of two pairs.")
	e.op("MOVQ packArgs_rows(AX), BX")
	packLoop(e, func() {
		split(e, 0, 1)
		for i, name := range []string{"firstLines", "lastLines"} {
			e.op("VMOVDQU64 %s<>(SB), Z%d", name, 2+i)
			e.op("VPERMI2D Z1, Z0, Z%d", 2+i)
			e.op("VMOVDQU64 Z%d, %d(DI)", 2+i, 64*i)
		}
		e.op("ADDQ $128, SI")
		e.op("ADDQ $128, DI")
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

// fold turns tiles of sums into rows, after parts has finished line r in
// register r.
func fold(e *emitter, name, doc string, parts func(r int)) {
	e.function(name, "foldArgs", doc)
	foldLoop(e, func() {
		for r := range 16 {
			e.op("VMOVUPS %d(SI), Z%d", 64*r, r)
			parts(r)
		}
		column := transpose16(e)
		storeRows(e, column[:])
	})
}
