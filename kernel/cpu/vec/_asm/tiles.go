package main

import "fmt"

// Tiles by number: sums first, then those of the weights and of the columns.
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
		(&tiles{nw: s[0], nx: s[1]}).emit(e)
	}
}

// tiles is a kernel of nw tiles of weights by nx tiles of columns.
type tiles struct{ nw, nx int }

// sum is the tile of a sum, the same in every kernel so that shapes are too;
// place is where it lies in memory.
func (k *tiles) sum(w, x int) int   { return 2*w + x }
func (k *tiles) place(w, x int) int { return 1024 * (w*k.nx + x) }

func (k *tiles) emit(e *emitter) {
	e.function(fmt.Sprintf("tiles%dx%d", k.nw, k.nx), "tileArgs",
		fmt.Sprintf("groups of %d tiles of columns by %d tiles of rows of weights.", k.nx, k.nw))
	e.emit(ldtilecfg(memory{base: "AX"}))
	e.op("MOVQ tileArgs_ldw(AX), CX")
	e.op("MOVQ tileArgs_ldx(AX), DX")
	e.op("MOVQ tileArgs_sums(AX), DI")
	e.op("MOVQ tileArgs_groups(AX), R9")
	e.op("MOVQ tileArgs_ahead(AX), R13")
	e.op("MOVQ tileArgs_ldAhead(AX), R10")
	e.op("LEAQ (R10)(R10*2), R15")
	if k.nx == 2 {
		e.op("MOVQ tileArgs_soon(AX), R14")
	}
	group := e.label("group")
	block := e.label("block")
	e.at(group)
	k.begin(e)
	e.at(block)
	k.steps(e)
	k.end(e, block)
	if k.nx == 2 {
		k.nextRows(e)
	}
	e.op("ADDQ $%d, DI", 1024*k.nw*k.nx)
	e.op("MOVQ tileArgs_groupX(AX), R8")
	e.op("ADDQ R8, tileArgs_offsetX(AX)")
	e.op("MOVQ tileArgs_groupW(AX), R8")
	e.op("ADDQ R8, tileArgs_offsetW(AX)")
	e.op("DECQ R9")
	e.op("JNZ %s", group)
	e.emit(tilerelease())
	e.ret()
}

func (k *tiles) each(f func(w, x int)) {
	for w := range k.nw {
		for x := range k.nx {
			f(w, x)
		}
	}
}

// begin clears the sums or takes them from memory.
func (k *tiles) begin(e *emitter) {
	fresh, ready := e.label("fresh"), e.label("ready")
	e.op("MOVQ tileArgs_w(AX), BX")
	e.op("ADDQ tileArgs_offsetW(AX), BX")
	e.op("MOVQ tileArgs_x(AX), SI")
	e.op("ADDQ tileArgs_offsetX(AX), SI")
	if k.nw == 2 {
		e.op("MOVQ tileArgs_nextW(AX), R11")
		e.op("ADDQ BX, R11")
	}
	if k.nx == 2 {
		e.op("MOVQ tileArgs_nextX(AX), R12")
		e.op("ADDQ SI, R12")
	}
	e.op("CMPQ tileArgs_fresh(AX), $0")
	e.op("JNE %s", fresh)
	e.op("MOVQ $64, R8")
	k.each(func(w, x int) {
		e.emit(tileload(memory{base: "DI", index: "R8", disp: k.place(w, x)}, k.sum(w, x)))
	})
	e.op("JMP %s", ready)
	e.at(fresh)
	k.each(func(w, x int) { e.emit(tilezero(k.sum(w, x))) })
	e.at(ready)
}

// loadX takes a tile of columns. Pairs of them pass by a panel that must stay in
// the L1 cache, so they are hinted not to be kept there.
func (k *tiles) loadX(e *emitter, cursor string, x int) {
	m := memory{base: cursor, index: "DX"}
	if k.nx == 2 {
		e.emit(tileloadOnce(m, tileX+x))
	} else {
		e.emit(tileload(m, tileX+x))
	}
	e.op("ADDQ tileArgs_stepX(AX), %s", cursor)
}

func (k *tiles) loadW(e *emitter, cursor string, w int) {
	e.emit(tileload(memory{base: cursor, index: "CX"}, tileW+w))
	e.op("ADDQ tileArgs_stepW(AX), %s", cursor)
}

func (k *tiles) steps(e *emitter) {
	step, plain := e.label("step"), e.label("plain")
	wCursor, xCursor := [2]string{"BX", "R11"}, [2]string{"SI", "R12"}
	e.op("MOVQ tileArgs_steps(AX), R8")
	e.at(step)
	for x := range k.nx {
		if x < k.nw {
			k.loadW(e, wCursor[x], x)
		}
		k.loadX(e, xCursor[x], x)
		if x == k.nx-1 && k.nw > k.nx {
			k.loadW(e, wCursor[1], 1)
		}
	}
	k.each(func(w, x int) { e.emit(tdpbf16ps(tileX+x, tileW+w, k.sum(w, x))) })
	e.op("TESTQ R13, R13")
	e.op("JZ %s", plain)
	for range 4 * k.nw {
		for i := range 4 {
			e.op("PREFETCHT0 %s", spaced("R13", "R10", "R15", "", 0, i))
		}
		e.op("LEAQ (R13)(R10*4), R13")
	}
	e.op("ADDQ tileArgs_stepAhead(AX), R13")
	e.at(plain)
	if k.nx == 2 {
		for i := range 4 {
			e.op("PREFETCHT1 %s", spaced("R14", "R10", "R15", "", 0, i))
		}
		e.op("ADDQ $64, R14")
	}
	e.op("DECQ R8")
	e.op("JNZ %s", step)
}

// nextRows advances to the next four rows to prefetch, or stays at the last ones.
func (k *tiles) nextRows(e *emitter) {
	done := e.label("fetched")
	e.op("MOVQ tileArgs_soon(AX), R14")
	e.op("CMPQ tileArgs_soonRows(AX), $4")
	e.op("JLE %s", done)
	e.op("SUBQ $4, tileArgs_soonRows(AX)")
	e.op("LEAQ (R14)(R10*4), R14")
	e.op("MOVQ R14, tileArgs_soon(AX)")
	e.at(done)
}

// end leaves the sums in memory. Under scales they are the sums of one block along
// k, memory holds the sum over all blocks, and the next block begins at next.
func (k *tiles) end(e *emitter, next string) {
	scaled, first, add := e.label("scaled"), e.label("first"), e.label("add")
	added, done := e.label("added"), e.label("done")
	e.op("MOVQ $64, R8")
	e.op("CMPQ tileArgs_scaled(AX), $0")
	e.op("JNE %s", scaled)
	k.each(func(w, x int) {
		e.emit(tilestore(k.sum(w, x), memory{base: "DI", index: "R8", disp: k.place(w, x)}))
	})
	e.op("JMP %s", done)
	e.at(scaled)
	e.op("MOVQ tileArgs_block(AX), R13")
	k.each(func(w, x int) {
		e.emit(tilestore(k.sum(w, x), memory{base: "R13", index: "R8", disp: k.place(w, x)}))
		e.emit(tilezero(k.sum(w, x)))
	})
	e.op("MOVQ tileArgs_scales(AX), R8")
	e.op("ADDQ tileArgs_offsetScale(AX), R8")
	e.op("VBROADCASTSS (R8), Z31")
	e.op("CMPQ tileArgs_scaled(AX), $1")
	e.op("JEQ %s", add)
	e.op("CMPQ tileArgs_offsetScale(AX), $0")
	e.op("JEQ %s", first)
	e.at(add)
	for i := range 16 * k.nw * k.nx {
		r := i % 16
		e.op("VMOVUPS %d(R13), Z%d", 64*i, r)
		e.op("VFMADD213PS %d(DI), Z31, Z%d", 64*i, r)
		e.op("VMOVUPS Z%d, %d(DI)", r, 64*i)
	}
	e.op("JMP %s", added)
	e.at(first)
	e.note("added to zero, so that a negative one does not depend on the way")
	e.op("VPXORD Z30, Z30, Z30")
	for i := range 16 * k.nw * k.nx {
		e.op("VMOVUPS %d(R13), Z%d", 64*i, i%16)
		e.op("VFMADD213PS Z30, Z31, Z%d", i%16)
		e.op("VMOVUPS Z%d, %d(DI)", i%16, 64*i)
	}
	e.at(added)
	e.op("XORL R13, R13")
	e.op("ADDQ $4, tileArgs_offsetScale(AX)")
	e.op("MOVQ tileArgs_offsetScale(AX), R8")
	e.op("CMPQ R8, tileArgs_endScale(AX)")
	e.op("JLT %s", next)
	e.op("MOVQ $0, tileArgs_offsetScale(AX)")
	e.at(done)
}
