package main

// emitScores writes the kernel that multiplies rows with the queries of 16 heads, 64 rows at a
// time. A round multiplies one chunk of 64 elements while the next is decoded.
//
//	DX query   DI scores   R10 distance of lines   CX groups of 64 rows left   R9 chunk being multiplied
//	R14 places of rows to fetch, or 0
//	BX chunks with values of these rows left to decode; less than zero while the first of the next rows is
func (c *coded) emitScores() {
	refused := c.label("refused")
	c.function("attendScores"+c.name+"amx", "attendScoreArgs",
		"products of 64 x groups "+c.doc+", at any places, and 16 heads.")
	scoresOpen(c.emitter)
	c.op("MOVQ attendScoreArgs_at(AX), R8")
	if c.scaled {
		c.exponents(refused)
	}
	ordinaryMaps(c.emitter)
	c.op(`
		MOVQ attendScoreArgs_marks(AX), R15
		MOVQ attendScoreArgs_tiles(AX), R11
		LEAQ %d(R11), R9
		MOVQ attendScoreArgs_fetch(AX), R14`, codedSlot)
	c.rows(0, codedRounds, false)
	c.next()
	group, round, end, last := c.label("group"), c.label("round"), c.label("end"), c.label("last")
	c.at(group)
	c.op(`
		MOVQ attendScoreArgs_query(AX), DX
		MOVQ $7, BX`)
	for t := range 4 {
		emit(c.emitter, tilezero(t))
	}
	c.at(round)
	c.round(func(first, rows int) { c.rows(first, rows, false) })
	c.next()
	c.op(`
		DECQ BX
		JGT %s
		JMI %s`, round, end)
	c.round(func(first, rows int) { c.rows(first, rows, true) })
	c.op(`
		XCHGQ R9, R11
		CMPQ CX, $1
		JEQ %s`, last)
	c.note("The first chunk of the next rows is decoded while the last of these is multiplied.")
	c.op(`
		MOVQ attendScoreArgs_rows(AX), SI
		ADDQ $%d, R8
		ADDQ $%d, attendScoreArgs_marks(AX)
		MOVQ attendScoreArgs_marks(AX), R15`, 8*codedRounds, codedRounds/markRows)
	if c.scaled {
		c.op(`
			ADDQ $%d, attendScoreArgs_exponents(AX)
			MOVQ attendScoreArgs_exponents(AX), R12`, codedRounds*exponentRow)
	}
	c.op("JMP %s", round)
	c.at(end)
	scoresStore(c.emitter)
	c.op(`
		DECQ CX
		JMP %s`, group)
	c.at(last)
	c.round(func(int, int) {})
	scoresStore(c.emitter)
	c.op("MOVQ R14, attendScoreArgs_fetch(AX)")
	emit(c.emitter, tilerelease())
	c.ret()
	if c.scaled {
		c.at(refused)
		c.op("MOVQ $1, attendScoreArgs_nan(AX)")
		emit(c.emitter, tilerelease())
		c.ret()
	}
}

// next advances to the next chunk; the chunk that was decoded last is multiplied next.
func (c *coded) next() {
	c.op(`
		ADDQ $64, SI
		ADDQ $%d, R15`, markChunk)
	if c.scaled {
		c.op("ADDQ $4, R12")
	}
	c.op("XCHGQ R9, R11")
}

// round multiplies a chunk in two steps and calls decode between them for an eighth of the rows at a time.
func (c *coded) round(decode func(first, rows int)) {
	const eighth = codedRounds / 8
	for step := range 2 {
		scoreStep(c.emitter, step, func(i int) memory {
			return memory{base: "R9", index: "R10", disp: step*codedSlot/2 + i*tileBytes}
		}, func(i int) {
			if i%2 == 0 {
				fetchRow(c.emitter, "R14", "attendScoreArgs_memory", c.lines)
			}
			decode((4*step+i)*eighth, eighth)
		})
	}
	c.op("ADDQ $%d, DX", 4*tileBytes)
}

// emitValues writes attendValues for coded rows: their pairs are decoded for one group while the group before it is
// multiplied.
//
//	BX places of rows to fetch, or 0   DI out   DX weights   CX groups left   R10 distance of lines
//	R9 tiles being multiplied; R12 exponents of pairs
func (c *coded) emitValues() {
	c.function("attendValues"+c.name+"amx", "attendValueArgs",
		"out += weights * "+c.doc+", for 16 heads and 512 columns.")
	c.op("MOVQ attendValueArgs_shapes(AX), R10")
	emit(c.emitter, ldtilecfg(memory{base: "R10"}))
	c.op(`
		MOVQ attendValueArgs_rows(AX), SI
		MOVQ attendValueArgs_fetch(AX), BX
		MOVQ attendValueArgs_out(AX), DI
		MOVQ attendValueArgs_tiles(AX), R11
		LEAQ %d(R11), R9
		MOVQ $64, R10`, 4*tileBytes)
	ordinaryMaps(c.emitter)
	first := func() {
		c.op(`
			MOVQ attendValueArgs_at(AX), R8
			MOVQ attendValueArgs_marks(AX), R15`)
		if c.scaled {
			c.op("MOVQ attendValueArgs_exponents(AX), R12")
		}
	}
	first()
	for row := 0; row < 32; row += markRows {
		c.pairs(row)
	}
	columns, groups, wrapped, same := c.label("columns"), c.label("groups"), c.label("wrapped"), c.label("same")
	c.at(columns)
	valuesBegin(c.emitter)
	c.at(groups)
	c.note("The group to be decoded: the next one, or the first of the next columns.")
	c.op(`
		XCHGQ R9, R11
		ADDQ $%d, R8
		ADDQ $%d, R15`, 32*8, 32/markRows)
	if c.scaled {
		c.op("ADDQ $%d, R12", 32/2*exponentRow)
	}
	c.op(`
		CMPQ CX, $1
		JNE %s
		CMPQ attendValueArgs_columns(AX), $1
		JEQ %s`, same, wrapped) // after the last columns, these columns are decoded again
	c.op(`
		ADDQ $64, SI
		ADDQ $%d, attendValueArgs_marks(AX)`, markChunk)
	if c.scaled {
		c.op("ADDQ $4, attendValueArgs_exponents(AX)")
	}
	c.at(wrapped)
	first()
	c.at(same)
	valuesStep(c.emitter, "R9", func(quarter int) {
		if quarter%2 == 0 {
			fetchRow(c.emitter, "BX", "attendValueArgs_memory", c.lines)
		}
		for row := 8 * quarter; row < 8*quarter+8; row += markRows {
			c.pairs(row)
		}
	})
	c.op("JNZ %s", groups)
	valuesEnd(c.emitter, columns)
}
