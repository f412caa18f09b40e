package main

// emitIndex writes the indexer's scores on tiles. For 16 heads and 16 keys one
// tile accumulates the products of 128 elements in four steps: rows of A are
// heads, B holds keys as pairs of elements, so that lanes run along the keys
// and the sum over heads needs no folding.
func emitIndex(e *emitter) {
	codeTablesData(e)
	inOrderData(e)
	emitIndexFetch(e)
	emitIndexQuery(e)
	emitIndexKeys(e)
	emitIndexScores(e)
}

// emitIndexFetch writes the kernel that asks for memory before it is needed.
//
//	AX arguments   SI memory   CX lines left
func emitIndexFetch(e *emitter) {
	e.function("indexFetchamx", "indexPackArgs", "brings steps cache lines at src nearer.")
	e.op("MOVQ indexPackArgs_src(AX), SI")
	e.op("MOVQ indexPackArgs_steps(AX), CX")
	loop := e.label("loop")
	e.at(loop)
	e.op("PREFETCHT1 (SI)")
	e.op("ADDQ $64, SI")
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
	e.op("RET")
}

// emitIndexQuery writes the kernel that widens codes to bfloat16 in order.
//
//	AX arguments   SI codes   DI bfloat16   CX registers of 64 codes left
func emitIndexQuery(e *emitter) {
	e.function("indexQueryamx", "indexPackArgs", "widens steps x 64 codes at src to bfloat16 at dst.")
	openIndexPack(e)
	e.op("VMOVDQU64 %s<>(SB), Z26", inOrder)
	loop := e.label("loop")
	e.at(loop)
	e.op("VPERMQ (SI), Z26, Z0")
	decodeCodes(e, 0, 1, 2)
	e.op("VMOVDQU64 Z0, (DI)")
	e.op("VMOVDQU64 Z1, 64(DI)")
	e.op("ADDQ $64, SI")
	e.op("ADDQ $128, DI")
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
	e.ret()
}

func openIndexPack(e *emitter) {
	e.op("MOVQ indexPackArgs_src(AX), SI")
	e.op("MOVQ indexPackArgs_dst(AX), DI")
	e.op("MOVQ indexPackArgs_steps(AX), CX")
	codeTables(e)
}

// emitIndexKeys writes the kernel that widens groups of 16 keys to four tiles
// each: tile t holds elements 32t to 32t+31, its row p the pair 32t+2p of all
// 16 keys. Lane l of register i takes 16 bytes of key 4l+i, so that two rounds
// of interleaving bring the same pair of 16 keys together.
//
//	AX arguments   SI codes   DI tiles   CX groups left
func emitIndexKeys(e *emitter) {
	const keyBytes, tile, row = 128, 1024, 64
	e.function("indexKeysamx", "indexPackArgs", "widens steps groups of 16 keys at src to tiles of pairs at dst.")
	openIndexPack(e)
	loop := e.label("loop")
	e.at(loop)
	for chunk := range keyBytes / 16 {
		for i := range 4 {
			e.op("VMOVDQU %s, X%d", at16("SI", i*keyBytes+16*chunk), i)
			for lane := 1; lane < 4; lane++ {
				e.op("VINSERTI32X4 $%d, %s, Z%d, Z%d", lane, at16("SI", (4*lane+i)*keyBytes+16*chunk), i, i)
			}
		}
		for i, half := range []string{"L", "H"} {
			e.op("VPUNPCK%sWD Z1, Z0, Z%d", half, 4+2*i)
			e.op("VPUNPCK%sWD Z3, Z2, Z%d", half, 5+2*i)
		}
		for i := range 4 {
			e.op("VPUNPCK%sDQ Z%d, Z%d, Z%d", []string{"L", "H"}[i%2], 5+i/2*2, 4+i/2*2, 8+3*i)
		}
		for i := range 4 {
			decodeCodes(e, 8+3*i, 9+3*i, 10+3*i)
			at := chunk/2*tile + (chunk%2*8+2*i)*row
			e.op("VMOVDQU64 Z%d, %s", 8+3*i, at16("DI", at))
			e.op("VMOVDQU64 Z%d, %s", 9+3*i, at16("DI", at+row))
		}
	}
	e.op("ADDQ $%d, SI", 16*keyBytes)
	e.op("ADDQ $%d, DI", 4*tile)
	e.op("DECQ CX")
	e.op("JNZ %s", loop)
	e.ret()
}

// indexScores is the kernel that scores pairs of groups of keys, 32 at a time,
// with pairs of blocks of heads, also 32 at a time. The weighted sum of
// rectified products is two running sums for each key, over the blocks of heads
// with even and with odd number, added at the end. Reading a tile right after
// it was stored waits for the store to reach the cache, so the products of one
// pair of keys are summed up between the tile instructions of the next.
//
//	AX arguments   SI keys   CX pairs of groups left   BX scales   DI scores
//	R11, R12 query, weights    R13 pairs of blocks of heads left
//	R15, DX products: written, summed up; R14, R8 the same for this pair of blocks
//	R9, R10 distance of rows: tiles, query
//	Z0 to Z3 sums   Z4 to Z7 rectified products   Z31 zero
type indexScores struct{}

const (
	tileBytes = 1024
	headBytes = 256 // bfloat16 of one head
)

func emitIndexScores(e *emitter) {
	var k indexScores
	e.function("indexScoresamx", "indexScoreArgs", "scores pairs x 32 keys for one query.")
	e.op("MOVQ indexScoreArgs_shapes(AX), R9")
	e.emit(ldtilecfg(memory{base: "R9"}))
	for _, f := range [][2]string{{"keys", "SI"}, {"scales", "BX"}, {"scores", "DI"}, {"products", "R15"}, {"other", "DX"}, {"pairs", "CX"}} {
		e.op("MOVQ indexScoreArgs_%s(AX), %s", f[0], f[1])
	}
	e.op("MOVQ $64, R9")
	e.op("MOVQ $%d, R10", headBytes)
	e.op("VPXORD Z31, Z31, Z31")
	steady, last := e.label("steady"), e.label("last")
	k.pass(e, true, false)
	k.nextKeys(e)
	e.op("JZ %s", last)
	e.at(steady)
	k.pass(e, true, true)
	e.op("VMOVUPS Z0, (DI)")
	e.op("VMOVUPS Z1, 64(DI)")
	e.op("ADDQ $128, BX")
	e.op("ADDQ $128, DI")
	k.nextKeys(e)
	e.op("JNZ %s", steady)
	e.at(last)
	e.emit(tilerelease())
	k.pass(e, false, true)
	e.op("MOVQ indexScoreArgs_mask(AX), R8")
	e.op("KMOVW R8, K1")
	e.op("SHRQ $16, R8")
	e.op("KMOVW R8, K2")
	e.op("VMOVUPS Z0, K1, (DI)")
	e.op("VMOVUPS Z1, K2, 64(DI)")
	e.ret()
}

func (indexScores) nextKeys(e *emitter) {
	e.op("ADDQ $%d, SI", 8*tileBytes)
	e.op("XCHGQ DX, R15")
	e.op("DECQ CX")
}

// pass goes over all heads once: it multiplies one pair of keys, sums up the
// products of the pair before it, or both. Scores are left in Z0 and Z1.
func (k indexScores) pass(e *emitter, multiply, sum bool) {
	e.op("MOVQ indexScoreArgs_query(AX), R11")
	e.op("MOVQ indexScoreArgs_weights(AX), R12")
	e.op("MOVQ indexScoreArgs_heads(AX), R13")
	e.op("MOVQ R15, R14")
	e.op("MOVQ DX, R8")
	if sum {
		for i := range 4 {
			e.op("VPXORD Z%d, Z%d, Z%d", i, i, i)
		}
	}
	heads := e.label("heads")
	e.at(heads)
	if multiply {
		for t := range 4 {
			e.emit(tilezero(t))
		}
	}
	for step := range 16 {
		if multiply {
			k.multiplyStep(e, step)
		}
		if sum {
			k.sumRow(e, step)
		}
	}
	if multiply {
		for t := range 4 {
			e.emit(tilestore(t, memory{base: "R14", index: "R9", disp: t * tileBytes}))
		}
	}
	e.op("ADDQ $%d, R14", 4*tileBytes)
	e.op("ADDQ $%d, R8", 4*tileBytes)
	e.op("ADDQ $%d, R11", 32*headBytes)
	e.op("ADDQ $128, R12")
	e.op("DECQ R13")
	e.op("JNZ %s", heads)
	if sum {
		for g := range 2 {
			e.op("VADDPS Z%d, Z%d, Z%d", 2+g, g, g)
			e.op("VMULPS %d(BX), Z%d, Z%d", g*64, g, g)
		}
	}
}

// multiplyStep is one product of tiles, after what it is the first to need:
// tiles 4 and 5 hold keys, 6 and 7 heads, 0 to 3 the sums.
func (indexScores) multiplyStep(e *emitter, step int) {
	k := step / 4
	key := func(g int) { e.emit(tileload(memory{base: "SI", index: "R9", disp: (4*g + k) * tileBytes}, 4+g)) }
	head := func(b int) {
		e.emit(tileload(memory{base: "R11", index: "R10", disp: b*16*headBytes + k*64}, 6+b))
	}
	switch step % 4 {
	case 0:
		key(0)
		head(0)
		e.emit(tdpbf16ps(4, 6, 0))
	case 1:
		key(1)
		e.emit(tdpbf16ps(5, 6, 1))
	case 2:
		head(1)
		e.emit(tdpbf16ps(4, 7, 2))
	case 3:
		e.emit(tdpbf16ps(5, 7, 3))
	}
}

// sumRow adds one row of all four tiles of products.
func (indexScores) sumRow(e *emitter, row int) {
	for t := range 4 {
		e.op("VMAXPS %d(R8), Z31, Z%d", t*tileBytes+row*64, 4+t)
	}
	for b := range 2 {
		e.op("VBROADCASTSS %d(R12), Z%d", b*64+row*4, 8+b)
	}
	for t := range 4 {
		e.op("VFMADD231PS Z%d, Z%d, Z%d", 8+t/2, 4+t, t)
	}
}
