package main

// indexOnce is the kernel that scores keys for one query of 64 heads and widens the keys in the same loop: while one
// pair of groups is multiplied, the next is widened and the products of the one before are summed up. A pass is 32
// heads. Its products are stored when the next pass needs their tiles, and summed up in the pass after that. Sums are
// those of indexScores, in the same order.
//
//	AX arguments   SI keys being multiplied   R8 keys being widened   R14 places of groups   R13 a group   DX another
//	CX pairs of groups left   BX scales   DI scores   R11, R12 query, weights   R15 products [2 passes, 4] tiles
//	R9, R10 distance of rows: tiles, query
//	Z0 to Z3 sums   Z4 to Z9 products and weights   Z31 zero   others as for keys
type indexOnce struct{ indexScores }

func emitIndexOnce(e *emitter) {
	k := indexOnce{indexScores{e}}
	e.function("indexOnceamx", "indexScoreArgs",
		"scores pairs x 32 keys, whose groups are at the places, for one query of 64 heads.")
	e.op("MOVQ indexScoreArgs_shapes(AX), R9")
	emit(e, ldtilecfg(memory{base: "R9"}))
	for _, f := range [][2]string{{"keys", "R8"}, {"scales", "BX"}, {"scores", "DI"}, {"products", "R15"},
		{"pairs", "CX"}, {"query", "R11"}, {"weights", "R12"}, {"places", "R14"}} {
		e.op("MOVQ indexScoreArgs_%s(AX), %s", f[0], f[1])
	}
	e.op(`
		MOVQ $64, R9
		MOVQ $%d, R10
		VPXORD Z31, Z31, Z31`, headBytes)
	ordinaryMaps(e)
	e.op("LEAQ %d(R8), SI", 2*groupBytes)
	for range 2 {
		k.group()
		for chunk := range keyChunks {
			widenChunk(e, chunk)
		}
		e.op("ADDQ $%d, R8", groupBytes)
	}
	k.turn()
	steady, last := e.label("steady"), e.label("last")
	for p := range 2 {
		k.pass(p, false)
	}
	k.turn()
	e.op(`
		DECQ CX
		JZ %s`, last)
	e.at(steady)
	k.clear()
	for p := range 2 {
		k.pass(p, true)
	}
	k.finish()
	e.op(`
		VMOVUPS Z0, (DI)
		VMOVUPS Z1, 64(DI)
		ADDQ $128, BX
		ADDQ $128, DI`)
	k.turn()
	e.op(`
		DECQ CX
		JNZ %s`, steady)
	e.at(last)
	for t := range 4 {
		k.store(1, t)
	}
	emit(e, tilerelease())
	k.clear()
	for p := range 2 {
		for row := range 16 {
			k.sum(p, row)
		}
	}
	k.finish()
	k.storeLast()
	e.ret()
}

// group advances to the next group to be widened.
func (k indexOnce) group() {
	k.op(`
		MOVQ (R14), R13
		ADDQ $8, R14`)
}

// turn exchanges the two sets of tiles: the keys just widened are multiplied next, the others are overwritten.
func (k indexOnce) turn() {
	k.op(`
		SUBQ $%d, R8
		XCHGQ SI, R8`, 2*groupBytes)
}

// store writes tile t of the products of a pass to memory.
func (k indexOnce) store(pass, t int) {
	emit(k.indexScores.emitter, tilestore(t, memory{base: "R15", index: "R9", disp: (4*pass + t) * tileBytes}))
}

// sum adds one row of the products of a pass to the sums.
func (k indexOnce) sum(pass, row int) {
	k.addRow("R15", 4*pass*tileBytes, 128*pass, row)
}

// pass multiplies one pair of keys with 32 heads and widens one group of the next pair. In the passes of the first
// pair there are no products to sum up, and in the first pass there are none to store.
func (k indexOnce) pass(pass int, sum bool) {
	k.group()
	for step := range 16 {
		k.multiply(step, pass*32*headBytes, func(t int) {
			if sum || pass == 1 {
				k.store(1-pass, t)
			}
		})
		if step%2 == 0 {
			k.op("MOVQ %d(R14), DX", 8*(fetchGroups-1))
			for line := range 4 {
				k.op("PREFETCHT1 %d(DX)", 64*(2*step+line))
			}
			widenChunk(k.indexScores.emitter, step/2)
		}
		for row := range k.rowsAt(step, true) {
			if sum {
				k.sum(pass, row)
			}
		}
	}
	k.op("ADDQ $%d, R8", groupBytes)
}
