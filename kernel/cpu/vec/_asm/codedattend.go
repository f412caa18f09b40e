package main

// emitScores writes the kernel that multiplies rows with the queries of 16 heads, 64 rows at a
// time. A round multiplies one chunk of 64 elements while the next is decoded.
//
//	DX query   DI scores   R10 distance of lines   CX groups of 64 rows left   R9 chunk being multiplied
//	R14 places of rows to fetch, or 0
//	BX chunks with values of these rows left to decode; less than zero while the first of the next rows is
func (c *coded) emitScores(e *emitter) {
	const a = "attendScoreArgs_"
	refused := e.label("refused")
	e.function("attendScores"+c.name+"amx", "attendScoreArgs",
		"products of 64 x groups "+c.doc+", at any places, and 16 heads.")
	e.scoresOpen()
	e.op("MOVQ %sat(AX), R8", a)
	if c.scaled {
		c.exponents(e, refused)
	}
	e.ordinaryMaps()
	e.op("MOVQ %smarks(AX), R15", a)
	e.op("MOVQ %stiles(AX), R11", a)
	e.op("LEAQ %d(R11), R9", codedSlot)
	e.op("MOVQ %sfetch(AX), R14", a)
	c.rows(e, 0, codedRounds, false)
	c.next(e)
	group, round, end, last := e.label("group"), e.label("round"), e.label("end"), e.label("last")
	e.at(group)
	e.op("MOVQ %squery(AX), DX", a)
	e.op("MOVQ $7, BX")
	for t := range 4 {
		e.emit(tilezero(t))
	}
	e.at(round)
	c.round(e, func(first, rows int) { c.rows(e, first, rows, false) })
	c.next(e)
	e.op("DECQ BX")
	e.op("JGT %s", round)
	e.op("JMI %s", end)
	c.round(e, func(first, rows int) { c.rows(e, first, rows, true) })
	e.op("XCHGQ R9, R11")
	e.op("CMPQ CX, $1")
	e.op("JEQ %s", last)
	e.note("The first chunk of the next rows is decoded while the last of these is multiplied.")
	e.op("MOVQ %srows(AX), SI", a)
	e.op("ADDQ $%d, R8", 8*codedRounds)
	e.op("ADDQ $%d, %smarks(AX)", codedRounds/markRows, a)
	e.op("MOVQ %smarks(AX), R15", a)
	if c.scaled {
		e.op("ADDQ $%d, %sexponents(AX)", codedRounds*exponentRow, a)
		e.op("MOVQ %sexponents(AX), R12", a)
	}
	e.op("JMP %s", round)
	e.at(end)
	e.scoresStore()
	e.op("DECQ CX")
	e.op("JMP %s", group)
	e.at(last)
	c.round(e, func(int, int) {})
	e.scoresStore()
	e.op("MOVQ R14, %sfetch(AX)", a)
	e.emit(tilerelease())
	e.ret()
	if c.scaled {
		e.at(refused)
		e.op("MOVQ $1, %snan(AX)", a)
		e.emit(tilerelease())
		e.ret()
	}
}

// next advances to the next chunk; the chunk just decoded is multiplied next.
func (c *coded) next(e *emitter) {
	e.op("ADDQ $64, SI")
	e.op("ADDQ $%d, R15", markChunk)
	if c.scaled {
		e.op("ADDQ $4, R12")
	}
	e.op("XCHGQ R9, R11")
}

// round multiplies a chunk, two steps, while rows are decoded by eighths.
func (c *coded) round(e *emitter, decode func(first, rows int)) {
	const eighth = codedRounds / 8
	for step := range 2 {
		e.scoreStep(step, func(i int) memory {
			return memory{base: "R9", index: "R10", disp: step*codedSlot/2 + i*tileBytes}
		}, func(i int) {
			if i%2 == 0 {
				e.fetchRow("R14", "attendScoreArgs_memory", c.lines)
			}
			decode((4*step+i)*eighth, eighth)
		})
	}
	e.op("ADDQ $%d, DX", 4*tileBytes)
}

// emitValues writes attendValues for coded rows: their pairs are decoded for one group while the group before it is
// multiplied.
//
//	BX places of rows to fetch, or 0   DI out   DX weights   CX groups left   R10 distance of lines
//	R9 tiles being multiplied; R12 exponents of pairs
func (c *coded) emitValues(e *emitter) {
	const a = "attendValueArgs_"
	e.function("attendValues"+c.name+"amx", "attendValueArgs",
		"out += weights * "+c.doc+", for 16 heads and 512 columns.")
	e.op("MOVQ %sshapes(AX), R10", a)
	e.emit(ldtilecfg(memory{base: "R10"}))
	e.op("MOVQ %srows(AX), SI", a)
	e.op("MOVQ %sfetch(AX), BX", a)
	e.op("MOVQ %sout(AX), DI", a)
	e.op("MOVQ %stiles(AX), R11", a)
	e.op("LEAQ %d(R11), R9", 4*tileBytes)
	e.op("MOVQ $64, R10")
	e.ordinaryMaps()
	first := func() {
		e.op("MOVQ %sat(AX), R8", a)
		e.op("MOVQ %smarks(AX), R15", a)
		if c.scaled {
			e.op("MOVQ %sexponents(AX), R12", a)
		}
	}
	first()
	for row := 0; row < 32; row += markRows {
		c.pairs(e, row)
	}
	columns, groups, wrapped, same := e.label("columns"), e.label("groups"), e.label("wrapped"), e.label("same")
	e.at(columns)
	e.valuesBegin()
	e.at(groups)
	e.note("The group to be decoded: the next one, or the first of the next columns.")
	e.op("XCHGQ R9, R11")
	e.op("ADDQ $%d, R8", 32*8)
	e.op("ADDQ $%d, R15", 32/markRows)
	if c.scaled {
		e.op("ADDQ $%d, R12", 32/2*exponentRow)
	}
	e.op("CMPQ CX, $1")
	e.op("JNE %s", same)
	e.op("CMPQ %scolumns(AX), $1", a)
	e.op("JEQ %s", wrapped) // after the last columns the same ones are decoded again
	e.op("ADDQ $64, SI")
	e.op("ADDQ $%d, %smarks(AX)", markChunk, a)
	if c.scaled {
		e.op("ADDQ $4, %sexponents(AX)", a)
	}
	e.at(wrapped)
	first()
	e.at(same)
	e.valuesStep("R9", func(quarter int) {
		if quarter%2 == 0 {
			e.fetchRow("BX", a+"memory", c.lines)
		}
		for row := 8 * quarter; row < 8*quarter+8; row += markRows {
			c.pairs(e, row)
		}
	})
	e.op("JNZ %s", groups)
	e.valuesEnd(columns)
}
