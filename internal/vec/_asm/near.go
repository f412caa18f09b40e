package main

import "fmt"

// Kernels that read rows of bfloat16 in place. The parts of rows that a tile needs are copied shortly before they are
// multiplied, to a few kilobytes that stay in the L1 cache. Copying and multiplying overlap.

// nearSlot is the size in bytes of the tiles to which one step along 64 rows is copied. There are two slots: one is
// filled while the other is multiplied. They are small, because other data that passes through the L1 cache evicts
// them.
const nearSlot = 4 * tileBytes

// emitAttendScoresAt writes attendScores for rows in any place. A round takes two
// steps, one from each slot.
//
//	AX arguments   SI memory, further along the rows with every round   R8 places of rows
//	CX groups of 64 rows left   BX rounds left   DX query   DI scores
//	R9 copied tiles   R10 distance of lines   R13 a row   R14 places of rows to fetch, or 0
func emitAttendScoresAt(e *emitter, name string, steps int) {
	if steps%2 != 0 {
		panic("a round takes two steps")
	}
	e.function(name, "attendScoreArgs",
		fmt.Sprintf("products of 64 x groups rows of %d elements, at any places, and 16 heads.", 32*steps))
	scoresOpen(e)
	e.op(`
		MOVQ attendScoreArgs_at(AX), R8
		MOVQ attendScoreArgs_tiles(AX), R9
		MOVQ attendScoreArgs_fetch(AX), R14`)
	copyRows(e, 0, 0, 0, 64)
	loop, round, same := e.label("loop"), e.label("round"), e.label("same")
	e.at(loop)
	e.op(`
		MOVQ attendScoreArgs_query(AX), DX
		MOVQ $%d, BX`, steps/2)
	for t := range 4 {
		emit(e, tilezero(t))
	}
	e.at(round)
	slot := func(n int) func(i int) memory {
		return func(i int) memory { return memory{base: "R9", index: "R10", disp: n*nearSlot + i*tileBytes} }
	}
	between := func(from, to int) func(i int) {
		return func(i int) {
			if i%2 == 0 {
				fetchRow(e, "R14", "attendScoreArgs_memory", steps)
			}
			copyRows(e, from, to, 16*i, 16)
		}
	}
	scoreStep(e, 0, slot(0), between(64, 1))
	e.op(`
		ADDQ $128, SI
		DECQ BX
		JNZ %s`, same)
	e.note("The first step of the next rows is copied next.")
	e.op(`
		MOVQ attendScoreArgs_rows(AX), SI
		ADDQ $%d, R8`, 64*8)
	e.at(same)
	scoreStep(e, 1, slot(1), between(0, 0))
	e.op(`
		ADDQ $%d, DX
		TESTQ BX, BX
		JNZ %s`, 4*tileBytes, round)
	scoresStore(e)
	e.op(`
		DECQ CX
		JNZ %s
		MOVQ R14, attendScoreArgs_fetch(AX)`, loop)
	emit(e, tilerelease())
	e.ret()
}

// copyRows copies 64 bytes of the given rows, out of 64, from byte from on, to the lines of the tiles of a slot.
func copyRows(e *emitter, from, slot, first, rows int) {
	for row := first; row < first+rows; row++ {
		z := row % 8
		e.op(`
			MOVQ %d(R8), R13
			VMOVDQU64 %d(SI)(R13*1), Z%d`, 8*row, from, z)
		e.op("VMOVDQU64 Z%d, %d(R9)", z, slot*nearSlot+64*row)
	}
}

// emitAttendValues writes the kernel that adds weighted rows to the sums of 16 heads: four tiles of columns at a time,
// over all groups of 32 rows. The elements of two adjacent rows are interleaved for one group while the group before it
// is multiplied. Rows of a later call are prefetched, one for every few quarters of a group.
//
//	AX arguments   SI memory and columns   R8 places of rows   R9 groups left of these columns
//	R11, R12 tiles being filled, and the others   BX places of rows to fetch, or 0
//	DI out   DX weights   CX groups left   R10 distance of lines   R13 to R15 rows
func emitAttendValues(e *emitter, name string, rowLines, every int) {
	e.function(name, "attendValueArgs", "out += weights * rows, for 16 heads and 512 columns.")
	e.op("MOVQ attendValueArgs_shapes(AX), R10")
	emit(e, ldtilecfg(memory{base: "R10"}))
	e.op(`
		MOVQ attendValueArgs_rows(AX), SI
		MOVQ attendValueArgs_at(AX), R8
		MOVQ attendValueArgs_groups(AX), R9
		MOVQ attendValueArgs_tiles(AX), R11
		LEAQ %d(R11), R12
		MOVQ attendValueArgs_fetch(AX), BX
		MOVQ attendValueArgs_out(AX), DI
		MOVQ $64, R10`, 4*tileBytes)
	for pair := range 16 {
		pairRows(e, pair)
	}
	columns, groups, same := e.label("columns"), e.label("groups"), e.label("same")
	e.at(columns)
	valuesBegin(e)
	e.at(groups)

	e.note("The group to be filled: the next one, or the first of the next columns.")
	e.op(`
		XCHGQ R11, R12
		ADDQ $%d, R8
		DECQ R9
		JNZ %s
		MOVQ attendValueArgs_groups(AX), R9
		MOVQ attendValueArgs_at(AX), R8
		CMPQ attendValueArgs_columns(AX), $1
		JEQ %s`, 32*8, same, same) // after the last columns, the tiles of these columns are filled again
	e.op("ADDQ $128, SI")
	e.at(same)
	valuesStep(e, "R12", func(quarter int) {
		if quarter%every == 0 {
			fetchRow(e, "BX", "attendValueArgs_memory", rowLines)
		}
		for pair := 4 * quarter; pair < 4*quarter+4; pair++ {
			pairRows(e, pair)
		}
	})
	e.op("JNZ %s", groups)
	valuesEnd(e, columns)
}

// valuesBegin loads the sums of four tiles of columns, or zeros.
func valuesBegin(e *emitter) {
	fresh, begun := e.label("fresh"), e.label("begun")
	e.op(`
		MOVQ attendValueArgs_weights(AX), DX
		MOVQ attendValueArgs_groups(AX), CX
		CMPQ attendValueArgs_first(AX), $0
		JNE %s`, fresh)
	for t := range 4 {
		emit(e, tileload(memory{base: "DI", index: "R10", disp: t * tileBytes}, t))
	}
	e.op("JMP %s", begun)
	e.at(fresh)
	for t := range 4 {
		emit(e, tilezero(t))
	}
	e.at(begun)
}

// fetchRow prefetches a row of a later call; it uses R13. If the cursor in the list of rows is zero, it prefetches
// nothing. A CPU has few line fill buffers, so rows are fetched one by one between other instructions: the first lines
// of one row, and the remaining lines of the row two before it, some of which the hardware prefetcher has loaded by
// then.
func fetchRow(e *emitter, cursor, memory string, lines int) {
	fetched := e.label("fetched")
	e.op(`
		TESTQ %s, %s
		JZ %s
		MOVQ (%s), R13`, cursor, cursor, fetched, cursor)
	e.op("ADDQ %s(AX), R13", memory)
	const first, behind = 2, 2
	for line := range lines {
		if line == first {
			e.op(`
				MOVQ %d(%s), R13
				ADDQ %s(AX), R13`, -8*behind, cursor, memory)
		}
		e.op("PREFETCHT1 %d(R13)", 64*line)
	}
	e.op("ADDQ $8, %s", cursor)
	e.at(fetched)
}

// valuesStep multiplies the tiles of one group by its weights, while fill fills another group in four quarters. It also
// counts the group.
func valuesStep(e *emitter, tiles string, fill func(quarter int)) {
	weights := func(part, t int) { emit(e, tileload(memory{base: "DX", index: "R10", disp: part * tileBytes}, t)) }
	pairs := func(column, t int) { emit(e, tileload(memory{base: tiles, index: "R10", disp: column * tileBytes}, t)) }
	weights(0, 4)
	weights(1, 5)
	for t := 0; t < 4; t += 2 {
		fill(t)
		pairs(t, 6)
		emit(e, tdpbf16ps(6, 4, t))
		pairs(t+1, 7)
		emit(e, tdpbf16ps(7, 4, t+1))
		fill(t + 1)
		emit(e, tdpbf16ps(6, 5, t))
		emit(e, tdpbf16ps(7, 5, t+1))
	}
	e.op(`
		ADDQ $%d, DX
		DECQ CX`, 2*tileBytes)
}

// valuesEnd stores the sums of four tiles of columns and advances to the next four tiles.
func valuesEnd(e *emitter, columns string) {
	for t := range 4 {
		emit(e, tilestore(t, memory{base: "DI", index: "R10", disp: t * tileBytes}))
	}
	e.op(`
		ADDQ $%d, DI
		SUBQ $1, attendValueArgs_columns(AX)
		JNZ %s`, 4*tileBytes, columns)
	emit(e, tilerelease())
	e.ret()
}

// pairRows interleaves 64 elements of two adjacent rows of a group, which gives one line of each of four tiles.
func pairRows(e *emitter, pair int) {
	e.op(`
		MOVQ %d(R8), R14
		MOVQ %d(R8), R15`, 16*pair, 16*pair+8)
	for half := range 2 {
		e.op("VMOVDQU64 %d(SI)(R14*1), Z%d", 64*half, 4*half)
		e.op("VMOVDQU64 %d(SI)(R15*1), Z%d", 64*half, 4*half+1)
		e.op("VPUNPCKLWD Z%d, Z%d, Z%d", 4*half+1, 4*half, 4*half+2)
		e.op("VPUNPCKHWD Z%d, Z%d, Z%d", 4*half+1, 4*half, 4*half+3)
	}
	for t := range 4 {
		e.op("VMOVDQU64 Z%d, %d(R11)", 4*(t/2)+2+t%2, t*tileBytes+64*pair)
	}
}

// emitFetchRows writes the kernel that fetches rows.
//
//	AX arguments   SI memory   R8 places   CX rows left   R9 row   DX lines left
func emitFetchRows(e *emitter) {
	e.function("fetchRowsamx", "fetchArgs", "fetches the lines of rows.")
	e.op(`
		MOVQ fetchArgs_memory(AX), SI
		MOVQ fetchArgs_at(AX), R8
		MOVQ fetchArgs_rows(AX), CX`)
	row, line := e.label("row"), e.label("line")
	e.at(row)
	e.op(`
		MOVQ (R8), R9
		ADDQ SI, R9
		MOVQ fetchArgs_lines(AX), DX`)
	e.at(line)
	e.op(`
		PREFETCHT1 (R9)
		ADDQ $64, R9
		DECQ DX
		JNZ %s
		ADDQ $8, R8
		DECQ CX
		JNZ %s`, line, row)
	e.ret()
}

// emitHolds writes the kernel that searches rows of 512 bfloat16 for subnormal numbers,
// which tiles treat as zero.
//
//	AX arguments   SI memory   R8 places   CX rows left   R9 row   K3 numbers found
func emitHolds(e *emitter) {
	words(e, "exponents", 0x7F807F80)
	e.function("holdsamx", "fetchArgs", "nan is set where a row has a subnormal number.")
	e.op(`
		MOVQ fetchArgs_memory(AX), SI
		MOVQ fetchArgs_at(AX), R8
		MOVQ fetchArgs_rows(AX), CX
		VMOVDQU64 exponents<>(SB), Z1
		VMOVDQU64 magnitude<>(SB), Z2
		KXORD K3, K3, K3`)
	e.loop("row", "CX", func() {
		e.op("MOVQ (R8), R9")
		for c := range latentChunks {
			e.op(`
				VMOVDQU64 %d(SI)(R9*1), Z0
				VPTESTNMW Z1, Z0, K1
				VPTESTMW Z2, Z0, K1, K1
				KORD K1, K3, K3`, 64*c)
		}
		e.op("ADDQ $8, R8")
	})
	e.op(`
		KMOVD K3, R9
		MOVQ R9, fetchArgs_nan(AX)`)
	e.ret()
}
