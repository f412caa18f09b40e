package main

import "fmt"

// fold is a set of kernels that turn tiles of sums, a line for every row of
// weights, into rows of y. There are rows rows of x; the sums of their second parts,
// if there are two, are in the tile after that of the first parts or, with few rows,
// in the columns after those of the first parts.
type fold struct {
	name        string
	rows, parts int
}

func (f fold) of(name string) string { return "fold" + name + f.name }

// loop runs body for every tile of sums at SI; rows of y begin at DI, R9
// bytes apart, and K1 holds the columns that exist. R13 is the rows left.
func (f fold) loop(e *emitter, body func()) {
	loop := e.label("loop")
	e.op(`
		MOVQ foldArgs_sums(AX), SI
		MOVQ foldArgs_y(AX), DI
		MOVQ foldArgs_ldy(AX), R9
		MOVQ foldArgs_tiles(AX), R8
		MOVQ foldArgs_mask(AX), R10
		KMOVW R10, K1`)
	e.at(loop)
	body()
	e.op(`
		ADDQ foldArgs_nextSums(AX), SI
		ADDQ foldArgs_nextY(AX), DI
		DECQ R8
		JNZ %s`, loop)
	e.ret()
}

// load loads line r of a tile from an address, and adds the line of the second part's tile.
func (f fold) load(e *emitter, r int, at func(disp int) string) {
	e.op("VMOVUPS %s, Z%d", at(0), r)
	if f.rows == 16 && f.parts == 2 {
		e.op("VADDPS %s, Z%d, Z%d", at(1024), r, r)
	}
}

// turn transposes the lines in registers 0 to 15 and returns the register of each row.
func (f fold) turn(e *emitter) []int {
	column := transpose16(e)
	if f.rows < 16 {
		for r := range f.rows {
			e.op("VADDPS Z%d, Z%d, Z%d", column[f.rows+r], column[r], column[r])
		}
	}
	return column[:f.rows]
}

// storeRows stores registers as rows of y, or adds them to the rows, for as many rows as there are.
func storeRows(e *emitter, regs []int) {
	add, done := e.label("add"), e.label("stored")
	e.op(`
		MOVQ foldArgs_rows(AX), R13
		MOVQ DI, R11
		CMPQ foldArgs_add(AX), $0
		JNE %s`, add)
	for _, r := range regs {
		e.op(`
			VMOVUPS Z%d, K1, (R11)
			ADDQ R9, R11
			DECQ R13
			JZ %s`, r, done)
	}
	e.op("JMP %s", done)
	e.at(add)
	for _, r := range regs {
		e.op(`
			VADDPS.Z (R11), Z%d, K1, Z%d
			VMOVUPS Z%d, K1, (R11)
			ADDQ R9, R11
			DECQ R13
			JZ %s`, r, r, r, done)
	}
	e.at(done)
}

// wide turns the sums of sixteen rows of x by pairs of tiles of weights into
// pieces of these rows, so that lines of y are written in order. Lines that will be
// written later are prefetched from R12 on: into the L2 cache, because the L1 cache
// has no more than sixteen outstanding misses.
func (f fold) wide(e *emitter) {
	e.function(f.of("Wide"), "foldArgs", "pairs of tiles of 16 x 16 sums to sixteen rows of 32 for each.")
	e.op("MOVQ foldArgs_soon(AX), R12")
	f.loop(e, func() {
		for i := range 2 {
			if i == 1 {
				e.op(`
					ADDQ foldArgs_lower(AX), SI
					ADDQ $64, DI`)
			}
			e.op("MOVQ R12, R11")
			for r := range 16 {
				f.load(e, r, func(disp int) string { return fmt.Sprintf("%d(SI)", disp+64*r) })
				e.op(`
					PREFETCHT1 (R11)
					ADDQ R9, R11`)
			}
			e.op("ADDQ $64, R12")
			storeRows(e, f.turn(e))
		}
	})
}

// strided writes a kernel like tiles for sums whose lines are a stride apart.
func (f fold) strided(e *emitter) {
	e.function(f.of("Strided"), "foldArgs",
		fmt.Sprintf("tiles of 16 lines of sums, lines a stride apart, to %d rows of 16.", f.rows))
	f.loop(e, func() {
		e.op("MOVQ SI, R11")
		for r := range 16 {
			f.load(e, r, func(disp int) string { return fmt.Sprintf("%d(R11)", disp) })
			e.op("ADDQ foldArgs_line(AX), R11")
		}
		storeRows(e, f.turn(e))
	})
}

// foldStridedOne writes the kernel like strided for one row of x: the sums of its two parts are adjacent.
func foldStridedOne(e *emitter) {
	for part := range 2 {
		laneWords(e, fmt.Sprintf("foldPart%d", part), func(i int) int { return 2*i + part })
	}
	e.function("foldStridedOne", "foldArgs", "sixteen pairs of sums to one row of 16.")
	fold{}.loop(e, func() {
		e.op("VMOVUPS (SI), Z2")
		for part := range 2 {
			e.op(`
				VMOVUPS foldPart%d<>(SB), Z%d
				VPERMI2PS 64(SI), Z2, Z%d`, part, part, part)
		}
		e.op("VADDPS Z1, Z0, Z0")
		storeRows(e, []int{0})
	})
}

// tiles writes a kernel that turns tiles of sums into rows.
func (f fold) tiles(e *emitter) {
	e.function(f.of("Tiles"), "foldArgs", fmt.Sprintf("tiles of 16 lines of sums to %d rows of 16.", f.rows))
	f.loop(e, func() {
		for r := range 16 {
			f.load(e, r, func(disp int) string { return fmt.Sprintf("%d(SI)", disp+64*r) })
		}
		storeRows(e, f.turn(e))
	})
}
