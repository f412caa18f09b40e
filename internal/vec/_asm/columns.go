package main

import (
	"encoding/binary"
	"fmt"
)

// emitColumns writes the kernels that pack rows of x as columns of tiles, with two adjacent elements along k in each
// word. It also writes the kernel that turns tiles of sums back into rows. A float32 is packed as two bfloat16: the
// rounded number and the rounding error. The two parts are separate columns, whose sums are added in the end. Sixteen
// rows are a tile of first parts and one of second parts; a tile of fewer rows has the columns of all second parts
// after those of the first.
func emitColumns(e *emitter) {
	e.raw("")
	e.raw("// Rounds a float32 to bfloat16, halves away from zero, after the mask.")
	e.constant("roundHalf", 0x8000)
	e.constant("upperHalf", 0xFFFF0000)
	for half, name := range []string{"lowerPairs", "upperPairs"} {
		laneWords(e, name, func(i int) int { return 8*half + i/2 + i%2*16 })
	}
	for _, o := range []order{ascending, halves} {
		packSixteen(e, o, o.of("packSixteen"), true)
		packFew(e, "packEight", 8, o)
		packFew(e, "packFour", 4, o)
		packOne(e, o)
		packPlain(e, o)
	}
	packSixteen(e, ascending, "splitSixteen", false)
	for _, f := range []fold{{"Plain", 16, 1}, {"Parts", 16, 2}, {"Eight", 8, 2}, {"Four", 4, 2}} {
		f.tiles(e)
		f.strided(e)
		if f.rows == 16 {
			f.wide(e)
		}
	}
	foldStridedOne(e)
}

// laneWords writes a constant of sixteen words.
func laneWords(e *emitter, name string, word func(i int) int) {
	data := make([]byte, 64)
	for i := range 16 {
		binary.LittleEndian.PutUint32(data[4*i:], uint32(word(i)))
	}
	table(e, name, data)
}

// order is the order of the elements of a row: steps of 32 adjacent elements, or pairs of steps that have the first and
// the last eight elements of every sixteen in 64.
type order int

const (
	ascending order = iota
	halves
)

// turn returns the number of steps that are packed from the same elements.
func (o order) turn() int { return [...]int{ascending: 1, halves: 2}[o] }

// of returns the name of a kernel of this order.
func (o order) of(name string) string { return name + [...]string{"", "Halves"}[o] }

// packLoop runs body for every step, with masks K1 and up over the registers of
// its elements, size bytes each: two of float32 or one of bfloat16, twice as many
// where several steps share them. SI is the offset in a row, DI the place to write;
// out is the bytes of a step.
func packLoop(e *emitter, o order, size, out int, body func(step int)) {
	loop, full := e.label("loop"), e.label("full")
	each := 64 / size // elements of a register
	masks := min(32*o.turn()/each, 4)
	e.op(`
		MOVQ packArgs_columns(AX), DI
		MOVQ packArgs_steps(AX), R8
		XORL SI, SI`)
	for k := range masks {
		e.op("KXNORD K%d, K%d, K%d", 1+k, 1+k, 1+k)
	}
	e.at(loop)
	e.op(`
		CMPQ R8, $%d
		JNE %s
		MOVQ packArgs_mask(AX), R9`, o.turn(), full)
	for k := range masks {
		e.op(`
			KMOVD R9, K%d
			SHRQ $%d, R9`, 1+k, each)
	}
	e.at(full)
	for step := range o.turn() {
		body(step)
		e.op("ADDQ $%d, DI", out)
	}
	e.op(`
		ADDQ $%d, SI
		SUBQ $%d, R8
		JNZ %s`, size*32*o.turn(), o.turn(), loop)
	e.ret()
}

// load loads half i of the 32 float32 of a step, of the row at BX, into register 21. It overwrites 22 and 23.
func (o order) load(e *emitter, step, i int) {
	if o == ascending {
		e.op("VMOVUPS.Z %d(BX)(SI*1), K%d, Z21", 64*i, 1+i)
		return
	}
	for j := range 2 {
		e.op("VMOVUPS.Z %d(BX)(SI*1), K%d, Z%d", 128*i+64*j, 1+2*i+j, 22+j)
	}
	e.op("VSHUFF64X2 $%#x, Z23, Z22, Z21", [2]int{0x44, 0xEE}[step])
}

// split packs the 32 elements of a step of the row at BX as pairs into registers high and low. It uses registers 16 to
// 23. A number that would round to infinity is truncated instead, with no remainder, so that infinity stays infinity
// and no finite number becomes infinite; a NaN that truncation would turn into infinity is made quiet first.
func split(e *emitter, o order, step, high, low int) {
	const zero, x, mask = 16, 21, 5
	e.op("VPXORD Z%d, Z%d, Z%d", zero, zero, zero)
	for i := range 2 {
		top, rest := 17+i, 19+i
		o.load(e, step, i)
		e.list(`
			VPADDD roundHalf<>(SB), Z{x}, Z{top}
			VPANDD upperHalf<>(SB), Z{top}, Z{top}
			VFPCLASSPSZ $0x18, Z{top}, K{mask}
			VSUBPS Z{zero}, Z{x}, K{mask}, Z{top}
			VPANDD upperHalf<>(SB), Z{top}, K{mask}, Z{top}
			KNOTW K{mask}, K{mask}`, "x", x, "top", top, "mask", mask, "zero", zero)
		e.op("VSUBPS.Z Z%d, Z%d, K%d, Z%d", top, x, mask, rest)
	}
	emit(e, narrowPair(17, 18, high))
	emit(e, narrowPair(19, 20, low))
}

// splitPlain is split for ascending elements if no number is near the largest: a number that would round to infinity
// becomes NaN.
func splitPlain(e *emitter, high, low int) {
	for i := range 2 {
		ascending.load(e, 0, i)
		e.op(`
			VPADDD roundHalf<>(SB), Z21, Z%d
			VPANDD upperHalf<>(SB), Z%d, Z%d`, 17+i, 17+i, 17+i)
		e.op("VSUBPS Z%d, Z21, Z%d", 17+i, 19+i)
	}
	emit(e, narrowPair(17, 18, high))
	emit(e, narrowPair(19, 20, low))
}

// packSixteen writes a kernel that packs up to sixteen rows: two tiles for every step. Rows are first written to their
// tile; then the tile is transposed in place, unless the rows are the left operand of tiles.
func packSixteen(e *emitter, o order, name string, transposed bool) {
	packGroup(e, o, name, transposed, func(step int) { split(e, o, step, 0, 1) })
}

// packGroup is packSixteen with a function that splits the elements of a step into registers 0 and 1.
func packGroup(e *emitter, o order, name string, transposed bool, split func(step int)) {
	e.function(name, "packArgs",
		"up to sixteen rows of float32 to steps of two tiles, one of each part, of 16 lines of 16 pairs.")
	e.op("KXORW K7, K7, K7") // words of second parts that are not zero
	packLoop(e, o, 4, 2*1024, func(step int) {
		row := e.label("row")
		e.op(`
			MOVQ packArgs_count(AX), R10
			LEAQ packArgs_rows(AX), R11
			MOVQ DI, R12`)
		e.at(row)
		e.op("MOVQ (R11), BX")
		split(step)
		for part := range 2 {
			e.op("VMOVDQU64 Z%d, %d(R12)", part, 1024*part)
		}
		e.op(`
			VPTESTMD Z1, Z1, K6
			KORW K6, K7, K7
			ADDQ $8, R11
			ADDQ $64, R12
			DECQ R10
			JNZ %s
			KMOVW K7, R10
			MOVQ R10, packArgs_rest(AX)`, row)
		for part := 0; transposed && part < 2; part++ {
			for r := range 16 {
				e.op("VMOVDQU64 %d(DI), Z%d", 1024*part+64*r, r)
			}
			for c, r := range transpose16(e) {
				e.op("VMOVDQU64 Z%d, %d(DI)", r, 1024*part+64*c)
			}
		}
	})
}

// packFew writes a kernel that packs eight rows or four: a line of a tile has a pair of each part of every row.
func packFew(e *emitter, name string, rows int, o order) {
	e.function(o.of(name), "packArgs",
		fmt.Sprintf("%d rows of float32 to steps of 16 lines of %d pairs.", rows, 2*rows))
	line := map[int]string{8: "Z", 4: "Y"}[rows]
	packLoop(e, o, 4, 2*16*4*rows, func(step int) {
		for r := range rows {
			e.op("MOVQ packArgs_rows+%d(AX), BX", 8*r)
			split(e, o, step, r, rows+r)
		}
		for c, r := range transpose16(e) {
			e.op("VMOVDQU64 %s%d, %d(DI)", line, r, 8*rows*c)
		}
	})
}

// packOne writes a kernel that packs a single row: a line of a tile has a pair of each part.
func packOne(e *emitter, o order) {
	e.function(o.of("packOne"), "packArgs", "one row of float32 to steps of 16 lines of two pairs.")
	e.op("MOVQ packArgs_rows(AX), BX")
	packLoop(e, o, 4, 128, func(step int) {
		split(e, o, step, 0, 1)
		for half, pairs := range []string{"lowerPairs", "upperPairs"} {
			e.op(`
				VMOVDQU64 %s<>(SB), Z2
				VPERMI2D Z1, Z0, Z2
				VMOVDQU64 Z2, %d(DI)`, pairs, 64*half)
		}
	})
}

// packPlain writes a kernel that packs sixteen rows that are already bfloat16.
func packPlain(e *emitter, o order) {
	e.function(o.of("packPlain"), "packArgs", "sixteen rows of bfloat16 to steps of 16 lines of 16 pairs.")
	packLoop(e, o, 2, 1024, func(step int) {
		for r := range 16 {
			e.op("MOVQ packArgs_rows+%d(AX), BX", 8*r)
			if o == ascending {
				e.op("VMOVDQU16.Z (BX)(SI*1), K1, Z%d", r)
				continue
			}
			for j := range 2 {
				e.op("VMOVDQU16.Z %d(BX)(SI*1), K%d, Z%d", 64*j, 1+j, 16+j)
			}
			e.op("VSHUFI64X2 $%#x, Z17, Z16, Z%d", [2]int{0x88, 0xDD}[step], r)
		}
		for c, r := range transpose16(e) {
			e.op("VMOVDQU64 Z%d, %d(DI)", r, 64*c)
		}
	})
}

// transpose16 transposes registers 0 to 15, rows of 16 words, and returns the register of each column. It overwrites
// registers 16 to 31.
func transpose16(e *emitter) (column [16]int) {
	// Interleaves words of two rows, then of four, so that lane l of register 4q+j holds column 4l+j of rows 4q to
	// 4q+3.
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
	// Interleaves even and odd lanes of two quarters, and then lanes of all four.
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
