package main

import "fmt"

// Tile registers: sums first, then weights, then columns.
const (
	tileW = 4
	tileX = 6
)

// emitTiles writes the tile products: groups of columns by one block of rows of
// weights. Weights are the left operand, rows as a checkpoint stores them;
// columns of x are the right one, packed in pairs along k. A step is 32 weights of
// every row. Shapes come from the caller, so that a block may have fewer rows
// than its tiles.
//
//	AX arguments   BX, R11 cursors in w    CX bytes between rows of w
//	DI sums        SI, R12 cursors in x    DX bytes between pairs of x
//	R8 steps left  R9 groups left          R13, R10, R15 fetching: cursor, one, three strides
//	R14 the same, a little at a time, where columns come in pairs
func emitTiles(e *emitter) {
	for _, s := range [][2]int{{1, 1}, {1, 2}, {2, 1}, {2, 2}} {
		(&tiles{emitter: e, nw: s[0], nx: s[1]}).write()
	}
}

// tiles writes a kernel of nw tiles of weights by nx tiles of columns.
type tiles struct {
	*emitter
	nw, nx int
}

// sum returns the tile register of a sum, which is equal in every kernel, so that the tile shapes are equal; place
// returns the offset of the sum in memory.
func (k *tiles) sum(w, x int) int   { return 2*w + x }
func (k *tiles) place(w, x int) int { return 1024 * (w*k.nx + x) }

func (k *tiles) write() {
	k.function(fmt.Sprintf("tiles%dx%d", k.nw, k.nx), "tileArgs",
		fmt.Sprintf("groups of %d tiles of columns by %d tiles of rows of weights.", k.nx, k.nw))
	emit(k.emitter, ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ tileArgs_ldw(AX), CX
		MOVQ tileArgs_ldx(AX), DX
		MOVQ tileArgs_sums(AX), DI
		MOVQ tileArgs_groups(AX), R9
		MOVQ tileArgs_ahead(AX), R13
		MOVQ tileArgs_ldAhead(AX), R10
		LEAQ (R10)(R10*2), R15`)
	if k.nx == 2 {
		k.op("MOVQ tileArgs_soon(AX), R14")
	}
	group := k.label("group")
	block := k.label("block")
	k.at(group)
	k.begin()
	k.at(block)
	k.steps()
	k.end(block)
	if k.nx == 2 {
		k.nextRows()
	}
	k.op(`
		ADDQ $%d, DI
		MOVQ tileArgs_groupX(AX), R8
		ADDQ R8, tileArgs_offsetX(AX)
		MOVQ tileArgs_groupW(AX), R8
		ADDQ R8, tileArgs_offsetW(AX)
		DECQ R9
		JNZ %s`, 1024*k.nw*k.nx, group)
	emit(k.emitter, tilerelease())
	k.ret()
}

func (k *tiles) each(f func(w, x int)) {
	for w := range k.nw {
		for x := range k.nx {
			f(w, x)
		}
	}
}

// begin clears the sums or loads them from memory.
func (k *tiles) begin() {
	fresh, ready := k.label("fresh"), k.label("ready")
	k.op(`
		MOVQ tileArgs_w(AX), BX
		ADDQ tileArgs_offsetW(AX), BX
		MOVQ tileArgs_x(AX), SI
		ADDQ tileArgs_offsetX(AX), SI`)
	if k.nw == 2 {
		k.op(`
			MOVQ tileArgs_nextW(AX), R11
			ADDQ BX, R11`)
	}
	if k.nx == 2 {
		k.op(`
			MOVQ tileArgs_nextX(AX), R12
			ADDQ SI, R12`)
	}
	k.op(`
		CMPQ tileArgs_fresh(AX), $0
		JNE %s
		MOVQ $64, R8`, fresh)
	k.each(func(w, x int) {
		emit(k.emitter, tileload(memory{base: "DI", index: "R8", disp: k.place(w, x)}, k.sum(w, x)))
	})
	k.op("JMP %s", ready)
	k.at(fresh)
	k.each(func(w, x int) { emit(k.emitter, tilezero(k.sum(w, x))) })
	k.at(ready)
}

// loadX loads a tile of columns. Pairs of tiles are read while a panel must stay in the L1 cache, so they have the hint
// not to be kept there.
func (k *tiles) loadX(cursor string, x int) {
	m := memory{base: cursor, index: "DX"}
	if k.nx == 2 {
		emit(k.emitter, tileloadOnce(m, tileX+x))
	} else {
		emit(k.emitter, tileload(m, tileX+x))
	}
	k.op("ADDQ tileArgs_stepX(AX), %s", cursor)
}

func (k *tiles) loadW(cursor string, w int) {
	emit(k.emitter, tileload(memory{base: cursor, index: "CX"}, tileW+w))
	k.op("ADDQ tileArgs_stepW(AX), %s", cursor)
}

func (k *tiles) steps() {
	step, plain := k.label("step"), k.label("plain")
	wCursor, xCursor := [2]string{"BX", "R11"}, [2]string{"SI", "R12"}
	k.op("MOVQ tileArgs_steps(AX), R8")
	k.at(step)
	for x := range k.nx {
		if x < k.nw {
			k.loadW(wCursor[x], x)
		}
		k.loadX(xCursor[x], x)
		if x == k.nx-1 && k.nw > k.nx {
			k.loadW(wCursor[1], 1)
		}
	}
	k.each(func(w, x int) { emit(k.emitter, tdpbf16ps(tileX+x, tileW+w, k.sum(w, x))) })
	k.op(`
		TESTQ R13, R13
		JZ %s`, plain)
	for range 4 * k.nw {
		for i := range 4 {
			k.op("PREFETCHT0 %s", spaced("R13", "R10", "R15", "", 0, i))
		}
		k.op("LEAQ (R13)(R10*4), R13")
	}
	k.op("ADDQ tileArgs_stepAhead(AX), R13")
	k.at(plain)
	if k.nx == 2 {
		for i := range 4 {
			k.op("PREFETCHT1 %s", spaced("R14", "R10", "R15", "", 0, i))
		}
		k.op("ADDQ $64, R14")
	}
	k.op(`
		DECQ R8
		JNZ %s`, step)
}

// nextRows advances to the next four rows to prefetch, or stays at the last ones.
func (k *tiles) nextRows() {
	done := k.label("fetched")
	k.op(`
		MOVQ tileArgs_soon(AX), R14
		CMPQ tileArgs_soonRows(AX), $4
		JLE %s
		SUBQ $4, tileArgs_soonRows(AX)
		LEAQ (R14)(R10*4), R14
		MOVQ R14, tileArgs_soon(AX)`, done)
	k.at(done)
}

// end stores the sums. With scales, they are the sums of one block along k, memory holds the sum over all blocks, and
// the next block begins at next.
func (k *tiles) end(next string) {
	scaled, first, add := k.label("scaled"), k.label("first"), k.label("add")
	added, done := k.label("added"), k.label("done")
	k.op(`
		MOVQ $64, R8
		CMPQ tileArgs_scaled(AX), $0
		JNE %s`, scaled)
	k.each(func(w, x int) {
		emit(k.emitter, tilestore(k.sum(w, x), memory{base: "DI", index: "R8", disp: k.place(w, x)}))
	})
	k.op("JMP %s", done)
	k.at(scaled)
	k.op("MOVQ tileArgs_block(AX), R13")
	k.each(func(w, x int) {
		emit(k.emitter, tilestore(k.sum(w, x), memory{base: "R13", index: "R8", disp: k.place(w, x)}))
		emit(k.emitter, tilezero(k.sum(w, x)))
	})
	k.op(`
		MOVQ tileArgs_scales(AX), R8
		ADDQ tileArgs_offsetScale(AX), R8
		VBROADCASTSS (R8), Z31
		CMPQ tileArgs_scaled(AX), $1
		JEQ %s
		CMPQ tileArgs_offsetScale(AX), $0
		JEQ %s`, add, first)
	k.at(add)
	for i := range 16 * k.nw * k.nx {
		r := i % 16
		k.op("VMOVUPS %d(R13), Z%d", 64*i, r)
		k.op("VFMADD213PS %d(DI), Z31, Z%d", 64*i, r)
		k.op("VMOVUPS Z%d, %d(DI)", r, 64*i)
	}
	k.op("JMP %s", added)
	k.at(first)
	k.note("added to zero, so that a negative one does not depend on the way")
	k.op("VPXORD Z30, Z30, Z30")
	for i := range 16 * k.nw * k.nx {
		k.op(`
			VMOVUPS %d(R13), Z%d
			VFMADD213PS Z30, Z31, Z%d`, 64*i, i%16, i%16)
		k.op("VMOVUPS Z%d, %d(DI)", i%16, 64*i)
	}
	k.at(added)
	k.op(`
		XORL R13, R13
		ADDQ $4, tileArgs_offsetScale(AX)
		MOVQ tileArgs_offsetScale(AX), R8
		CMPQ R8, tileArgs_endScale(AX)
		JLT %s
		MOVQ $0, tileArgs_offsetScale(AX)`, next)
	k.at(done)
}
