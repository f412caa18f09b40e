package main

// emitIndex writes the indexer's scores on tiles. For 16 heads and 16 keys one
// tile accumulates the products of 128 elements in four steps: rows of A are
// heads, B holds keys as pairs of elements, so that lanes run along the keys
// and the sum over heads needs no folding.
func emitIndex(e *emitter) {
	codeTablesData(e)
	inOrderData(e)
	ordinaryData(e)
	emitIndexQuery(e)
	emitAnyKeys(e)
	emitIndexKeys(e)
	emitIndexScores(e)
	emitIndexOnce(e)
}

// emitIndexQuery writes the kernel that widens codes to bfloat16 in order.
//
//	AX arguments   SI codes   DI bfloat16   CX registers of 64 codes left
func emitIndexQuery(e *emitter) {
	e.function("indexQueryamx", "indexPackArgs", "widens steps x 64 codes at src to bfloat16 at dst.")
	e.op(`
		MOVQ indexPackArgs_src(AX), SI
		MOVQ indexPackArgs_dst(AX), DI
		MOVQ indexPackArgs_steps(AX), CX`)
	codeTables(e)
	e.op("VMOVDQU64 %s<>(SB), Z26", inOrder)
	e.loop("loop", "CX", func() {
		e.op("VPERMQ (SI), Z26, Z0")
		decodeCodes(e, 0, 1, 2)
		e.op(`
			VMOVDQU64 Z0, (DI)
			VMOVDQU64 Z1, 64(DI)
			ADDQ $64, SI
			ADDQ $128, DI`)
	})
	e.ret()
}

// indexScores is the kernel that scores pairs of groups of keys, 32 at a time, with pairs of blocks of heads, also 32
// at a time: a pass. The weighted sum of rectified products is two running sums for each key, over the blocks of heads
// with even and with odd index, added at the end. A load of a tile that was just stored waits until the store has
// reached the cache. So the products of a pass are stored during the next pass, and are summed up one pass later.
//
//	AX arguments   SI keys   CX pairs of groups left   BX scales   DI scores
//	R11, R12 query, weights    R13 pairs of blocks of heads left
//	R8, R14 products of this pass, of the pass before
//	R9, R10 distance of rows: tiles, query
//	Z0 to Z3 sums   Z4 to Z7 rectified products   Z8, Z9 weights   Z31 zero
type indexScores struct{ *emitter }

const (
	tileBytes = 1024
	headBytes = 256 // bfloat16 of one head
)

func emitIndexScores(e *emitter) {
	k := indexScores{e}
	e.function("indexScoresamx", "indexScoreArgs", "scores pairs x 32 keys for one query.")
	e.op("MOVQ indexScoreArgs_shapes(AX), R9")
	emit(e, ldtilecfg(memory{base: "R9"}))
	for _, f := range [][2]string{{"keys", "SI"}, {"scales", "BX"}, {"scores", "DI"}, {"products", "R14"},
		{"pairs", "CX"}} {
		e.op("MOVQ indexScoreArgs_%s(AX), %s", f[0], f[1])
	}
	e.op(`
		MOVQ $64, R9
		MOVQ $%d, R10
		VPXORD Z31, Z31, Z31`, headBytes)
	steady, last := e.label("steady"), e.label("last")
	k.passes(true, false)
	e.op(`
		ADDQ $%d, SI
		DECQ CX
		JZ %s`, 8*tileBytes, last)
	e.at(steady)
	k.passes(true, true)
	e.op(`
		VMOVUPS Z0, (DI)
		VMOVUPS Z1, 64(DI)
		ADDQ $128, BX
		ADDQ $128, DI
		ADDQ $%d, SI
		DECQ CX
		JNZ %s`, 8*tileBytes, steady)
	e.at(last)
	for t := range 4 {
		k.storeTile("R14", t)
	}
	emit(e, tilerelease())
	k.passes(false, true)
	k.storeLast()
	e.ret()
}

// passes processes all heads once: it multiplies one pair of keys, sums up the
// products of the pair before it, or both. Scores are left in Z0 and Z1.
func (k indexScores) passes(multiply, sum bool) {
	k.op(`
		MOVQ indexScoreArgs_query(AX), R11
		MOVQ indexScoreArgs_weights(AX), R12
		MOVQ indexScoreArgs_heads(AX), R13
		MOVQ indexScoreArgs_products(AX), R8`)
	if sum {
		k.clear()
	}
	k.loop("heads", "R13", func() {
		for step := range 16 {
			if multiply {
				k.multiply(step, 0, func(t int) { k.storeTile("R14", t) })
			}
			for row := range k.rowsAt(step, multiply) {
				if sum {
					k.addRow("R8", 0, 0, row)
				}
			}
		}
		k.op(`
			MOVQ R8, R14
			ADDQ $%d, R8
			ADDQ $%d, R11
			ADDQ $128, R12`, 4*tileBytes, 32*headBytes)
	})
	if sum {
		k.finish()
	}
}

// rowsAt returns the rows of products that are summed up at a step. Loads at the beginning of a pass would wait for
// stores of tiles at the same offsets in another page, so no rows are read there while tiles are stored.
func (indexScores) rowsAt(step int, stored bool) func(yield func(int) bool) {
	const rows, steps, late = 16, 16, 4
	return func(yield func(int) bool) {
		from, to := step, step+1
		if stored {
			from, to = max(0, step-late)*rows/(steps-late), max(0, step+1-late)*rows/(steps-late)
		}
		for row := from; row < to && yield(row); row++ {
		}
	}
}

// multiply is one product of tiles, preceded by the loads of the tiles it uses first: tiles 4 and 5 hold keys, 6 and 7
// heads, 0 to 3 the sums, whose products of the pass before are stored first.
func (k indexScores) multiply(step, query int, keep func(t int)) {
	depth, t := step/4, step%4
	g, b := t%2, t/2
	if b == 0 {
		emit(k.emitter, tileload(memory{base: "SI", index: "R9", disp: (4*g + depth) * tileBytes}, 4+g))
	}
	if g == 0 {
		emit(k.emitter, tileload(memory{base: "R11", index: "R10", disp: query + b*16*headBytes + depth*64}, 6+b))
	}
	if depth == 0 {
		keep(t)
		emit(k.emitter, tilezero(t))
	}
	emit(k.emitter, tdpbf16ps(4+g, 6+b, t))
}

func (k indexScores) storeTile(base string, t int) {
	emit(k.emitter, tilestore(t, memory{base: base, index: "R9", disp: t * tileBytes}))
}

// clear sets the sums to zero.
func (k indexScores) clear() {
	for i := range 4 {
		k.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
	}
}

// addRow adds one row of four tiles of products.
func (k indexScores) addRow(base string, products, weights, row int) {
	for t := range 4 {
		k.op("VMAXPS %s, Z31, Z%d", at16(base, products+t*tileBytes+row*64), 4+t)
	}
	for b := range 2 {
		k.op("VBROADCASTSS %d(R12), Z%d", weights+b*64+row*4, 8+b)
	}
	for t := range 4 {
		k.op("VFMADD231PS Z%d, Z%d, Z%d", 8+t/2, 4+t, t)
	}
}

// finish leaves the scores of two groups in Z0 and Z1.
func (k indexScores) finish() {
	for g := range 2 {
		k.op("VADDPS Z%d, Z%d, Z%d", 2+g, g, g)
		k.op("VMULPS %d(BX), Z%d, Z%d", g*64, g, g)
	}
}

// storeLast writes the existing scores of the last pair.
func (k indexScores) storeLast() {
	k.op(`
		MOVQ indexScoreArgs_mask(AX), R8
		KMOVW R8, K1
		SHRQ $16, R8
		KMOVW R8, K2
		VMOVUPS Z0, K1, (DI)
		VMOVUPS Z1, K2, 64(DI)`)
}
