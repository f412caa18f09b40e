package main

// Rows of a streaming kernel are widened four at a time. Ordinary codes, those
// with an exponent that are not NaN, take two affine maps and are put together by
// two unpackings. Marks of eight rows show whether there were other codes; these rows
// are then widened again, by tables. If such rows are frequent, all rows are widened by
// tables until they are rare again. In checkpoints one code in ten thousand is not
// ordinary, which costs 4 % of the time of one row of x; the worst case, tables for all
// rows, costs 45 %.
//
//	R9 first of four rows   DI panel
//	Z26 to Z30 marks and maps; see coded.go

const (
	rareRows = 8 // rows that have a mark
	// rareMost is how many fours of rows of a block, which has 16, may have been
	// widened by tables because of their codes for the next block to be taken as
	// ordinary: a third of the marks.
	rareMost = 3
	// groupFours is how many times four rows a unit has.
	groupFours = groupRows / 4
)

// manyRare selects how the rows of the next block are widened.
func (k *stream) manyRare() {
	few := k.label("few")
	k.op("MOVQ $0, streamArgs_exact(AX)")
	k.op("CMPQ streamArgs_rare(AX), $%d", rareMost)
	k.op("JLE %s", few)
	k.op("MOVQ $1, streamArgs_exact(AX)")
	k.at(few)
	k.op("MOVQ $0, streamArgs_rare(AX)")
}

// fill widens rows 4q to 4q+3 of a group into a half of the panel.
func (k *stream) fill(half, q int) {
	at := half * groupHalf
	exact, rare, done := k.label("exact"), k.label("rare"), k.label("filled")
	k.op("CMPQ streamArgs_exact(AX), $0")
	k.op("JNE %s", exact)
	for i := range 4 {
		row, z := 4*q+i, 4*(i%2)
		k.op("VMOVDQU64 %s, Z%d", spaced("R9", "CX", "R10", "", 0, i), z+2)
		if row%rareRows == 0 {
			markMap.apply(k.emitter, zMarkMap, z+2, zMark)
		} else {
			markMap.apply(k.emitter, zMarkMap, z+2, z+3)
			k.op("VPMAXUB Z%d, Z%d, Z%d", z+3, zMark, zMark)
		}
		k.unpackOrdinary(z+2, z+3, z)
		for step := range 2 {
			if !k.scaled {
				k.op("VPADDW Z%d, Z%d, Z%d", streamPower, z+step, z+step)
			}
			k.op("VMOVDQA64 Z%d, %d(DI)", z+step, at+step*groupStep+64*row)
		}
	}
	last := (4*q+4)%rareRows == 0
	if last {
		k.op("VPCMPUB $5, Z%d, Z%d, K1", zExtreme, zMark)
		k.op("KORTESTQ K1, K1")
		k.op("JNZ %s", rare)
	}
	k.at(done)
	k.aside = append(k.aside, func() {
		four := func(q int) {
			k.op("ADDQ $%d, DI", at+256*q)
			k.op("CALL anyRows<>(SB)")
			k.op("SUBQ $%d, DI", at+256*q)
		}
		k.at(exact)
		four(q)
		k.op("JMP %s", done)
		if !last {
			return
		}
		k.at(rare)
		for range 4 {
			k.op("SUBQ CX, R9")
		}
		four(q - 1)
		k.op("LEAQ (R9)(CX*4), R9")
		four(q)
		k.op("JMP %s", done)
	})
}

// emitAnyRows writes what widens four rows with any codes and counts it where
// these were not ordinary ones. It is called in the middle of a kernel and keeps
// all but K1 and registers below 16.
//
//	R9 first of the rows   DI their place in the panel   R8 table of the block
func (e *emitter) emitAnyRows() {
	const low, high, sign, mark = 10, 12, 14, 15
	ordinary := e.label("ordinary")
	e.raw("")
	e.raw("// Four rows with any codes from R9 on, to the panel.")
	e.raw("TEXT anyRows<>(SB), NOSPLIT, $0-0")
	e.op("PUSHQ R8")
	e.op("MOVQ (R11), R8")
	for i := range 4 {
		e.op("VMOVDQU64 %d(R8), Z%d", 64*i, low+i)
	}
	e.op("POPQ R8")
	e.op("VMOVDQU64 codeSign<>(SB), Z%d", sign)
	for i := range 4 {
		e.op("VMOVDQU64 %s, Z0", spaced("R9", "CX", "R10", "", 0, i))
		if i == 0 {
			markMap.apply(e, zMarkMap, 0, mark)
		} else {
			markMap.apply(e, zMarkMap, 0, 1)
			e.op("VPMAXUB Z1, Z%d, Z%d", mark, mark)
		}
		e.unpackCodes(codeRegisters{low: low, high: high, sign: sign}, 0, 1, 2)
		e.op("VMOVDQA64 Z0, %d(DI)", 64*i)
		e.op("VMOVDQA64 Z1, %d(DI)", groupStep+64*i)
	}
	e.op("VPCMPUB $5, Z%d, Z%d, K1", zExtreme, mark)
	e.op("KORTESTQ K1, K1")
	e.op("JZ %s", ordinary)
	e.op("INCQ streamArgs_rare(AX)")
	e.at(ordinary)
	e.op("RET")
}
