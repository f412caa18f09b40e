package main

import "fmt"

// emitPanels writes the tile kernels over a panel: many rows of x against a few
// rows of float32 weights, widened or in place, that stay in the L1 cache. Sums
// may be continued from and left in memory, so that a long k is processed in blocks
// without changing their order. With every tile some lines of the next panel are
// prefetched.
//
//	AX arguments   SI, R11 cursors in x, w   CX, DX one, three strides of x
//	BX x           DI y                      R9, R10 one, three strides of y, R9 five of w before
//	R8 sums        R12 steps                 R13 tiles left
//	R14, R15 one, three strides of w
//	K1 lanes of the last, partial step (the mask vector with 8 lanes)
func emitPanels(e *emitter, s *isa) {
	for _, p := range s.panels {
		(&panel{isa: s, mr: p[0], nr: p[1]}).emit(e)
	}
}

type panel struct {
	*isa
	mr, nr int
}

func (k *panel) acc(m, n int) int { return m*k.nr + n }
func (k *panel) x(m int) int      { return k.mr*k.nr + m }
func (k *panel) w() int           { return k.mr*k.nr + k.mr }

func (k *panel) emit(e *emitter) {
	name := fmt.Sprintf("panel%dx%d%s", k.mr, k.nr, k.name)
	e.function(name, "panelArgs",
		fmt.Sprintf("tiles of %d rows of x by one packed panel of %d rows of weights.", k.mr, k.nr))
	e.op("MOVQ panelArgs_x(AX), BX")
	e.op("MOVQ panelArgs_ldx(AX), CX")
	e.op("LEAQ (CX)(CX*2), DX")
	e.op("MOVQ panelArgs_y(AX), DI")
	e.op("MOVQ panelArgs_sums(AX), R8")
	e.op("MOVQ panelArgs_tiles(AX), R13")
	e.op("MOVQ panelArgs_ldw(AX), R14")
	e.op("LEAQ (R14)(R14*2), R15")
	if k.wide() {
		e.op("MOVQ panelArgs_mask(AX), R12")
		e.op("KMOVW R12, K1")
	}
	tile, fresh, ready := e.label("tile"), e.label("fresh"), e.label("ready")
	e.at(tile)
	k.fetch(e)
	k.fetchY(e)
	e.op("MOVQ BX, SI")
	e.op("MOVQ panelArgs_w(AX), R11")
	e.op("LEAQ (R14)(R14*4), R9")
	e.op("CMPQ panelArgs_first(AX), $0")
	e.op("JNE %s", fresh)
	for i := range k.mr * k.nr {
		e.op("VMOVUPS %d(R8), %s", i*k.bytes(), k.r(i))
	}
	e.op("JMP %s", ready)
	e.at(fresh)
	for i := range k.mr * k.nr {
		k.zero(e, i)
	}
	e.at(ready)
	k.steps(e)
	k.finish(e)
	for range k.mr {
		e.op("ADDQ CX, BX")
		e.op("ADDQ R9, DI")
	}
	e.op("ADDQ $%d, R8", k.mr*k.nr*k.bytes())
	e.op("DECQ R13")
	e.op("JNZ %s", tile)
	e.ret()
}

// fetch requests the next lines of every row that the next panel is made of.
func (k *panel) fetch(e *emitter) {
	line, none := e.label("line"), e.label("nofetch")
	e.op("MOVQ panelArgs_lines(AX), R12")
	e.op("TESTQ R12, R12")
	e.op("JZ %s", none)
	e.op("MOVQ panelArgs_ahead(AX), R11")
	e.at(line)
	e.op("MOVQ R11, SI")
	for range k.nr {
		e.op("PREFETCHT1 (SI)")
		e.op("ADDQ panelArgs_ldAhead(AX), SI")
	}
	e.op("ADDQ $64, R11")
	e.op("DECQ R12")
	e.op("JNZ %s", line)
	e.op("MOVQ R11, panelArgs_ahead(AX)")
	e.at(none)
}

// fetchY requests the lines of y that the tile will be written to.
func (k *panel) fetchY(e *emitter) {
	e.op("MOVQ panelArgs_ldy(AX), R9")
	e.op("LEAQ (R9)(R9*2), R10")
	for m := range k.mr {
		e.op("PREFETCHT0 %s", k.yAt(m, 0))
		e.op("PREFETCHT0 %s", k.yAt(m, k.nr-1))
	}
}

func (k *panel) steps(e *emitter) {
	loop, tail, none := e.label("loop"), e.label("tail"), e.label("notail")
	e.op("MOVQ panelArgs_steps(AX), R12")
	e.op("TESTQ R12, R12")
	e.op("JZ %s", tail)
	e.at(loop)
	for m := range k.mr {
		e.op("VMOVUPS %s, %s", spaced("SI", "CX", "DX", "", 0, m), k.r(k.x(m)))
	}
	k.multiply(e, func(n int) {
		e.op("VMOVUPS %s, %s", k.wAt(n), k.r(k.w()))
	})
	e.op("ADDQ $%d, SI", k.bytes())
	e.op("ADDQ $%d, R11", k.bytes())
	e.op("DECQ R12")
	e.op("JNZ %s", loop)
	e.at(tail)
	e.op("CMPQ panelArgs_mask(AX), $0")
	e.op("JE %s", none)
	if k.wide() {
		for m := range k.mr {
			e.op("VMOVUPS.Z %s, K1, %s", spaced("SI", "CX", "DX", "", 0, m), k.r(k.x(m)))
		}
		k.multiply(e, func(n int) {
			e.op("VMOVUPS.Z %s, K1, %s", k.wAt(n), k.r(k.w()))
		})
	} else {
		e.op("MOVQ panelArgs_maskVec(AX), R12")
		e.op("VMOVUPS (R12), %s", k.r(k.w()))
		for m := range k.mr {
			e.op("VMASKMOVPS %s, %s, %s", spaced("SI", "CX", "DX", "", 0, m), k.r(k.w()), k.r(k.x(m)))
		}
		k.multiply(e, func(n int) {
			e.op("VMOVUPS (R12), %s", k.r(k.w()))
			e.op("VMASKMOVPS %s, %s, %s", k.wAt(n), k.r(k.w()), k.r(k.w()))
		})
	}
	e.at(none)
}

// wAt is the address of the cursor in row n of the panel.
func (k *panel) wAt(n int) string { return spaced("R11", "R14", "R15", "R9", 0, n) }

// multiply adds one step of every row to the sums.
func (k *panel) multiply(e *emitter, load func(n int)) {
	for n := range k.nr {
		load(n)
		for m := range k.mr {
			e.op("VFMADD231PS %s, %s, %s", k.r(k.x(m)), k.r(k.w()), k.r(k.acc(m, n)))
		}
	}
}

// finish stores the sums as they are, or folds them into y when the last
// block of k is done.
func (k *panel) finish(e *emitter) {
	fold, done := e.label("fold"), e.label("done")
	e.op("MOVQ panelArgs_ldy(AX), R9")
	e.op("LEAQ (R9)(R9*2), R10")
	e.op("CMPQ panelArgs_last(AX), $0")
	e.op("JNE %s", fold)
	for i := range k.mr * k.nr {
		e.op("VMOVUPS %s, %d(R8)", k.r(i), i*k.bytes())
	}
	e.op("JMP %s", done)
	e.at(fold)
	if k.wide() {
		k.foldWide(e)
	} else {
		k.foldNarrow(e)
	}
	e.at(done)
}

func (k *panel) yAt(m, n int) string { return spaced("DI", "R9", "R10", "", 4*n, m) }

// foldNarrow folds four 8-lane sums of a row at a time.
func (k *panel) foldNarrow(e *emitter) {
	for m := range k.mr {
		a, t := k.acc(m, 0), k.w()
		e.op("VHADDPS Y%d, Y%d, Y%d", a+1, a, a)
		e.op("VHADDPS Y%d, Y%d, Y%d", a+3, a+2, a+2)
		e.op("VHADDPS Y%d, Y%d, Y%d", a+2, a, a)
		e.op("VEXTRACTF128 $1, Y%d, X%d", a, t)
		e.op("VADDPS X%d, X%d, X%d", t, a, a)
		e.op("VMOVUPS X%d, %s", a, k.yAt(m, 0))
	}
}

// foldWide folds the four rows of each column together, so that 128-bit lane m
// of every intermediate belongs to row m, and then pairs of columns.
func (k *panel) foldWide(e *emitter) {
	t := k.w()
	column := func(n int) int { return k.acc(0, n) }
	for n := range k.nr {
		foldFour(e, [4]int{k.acc(0, n), k.acc(1, n), k.acc(2, n), k.acc(3, n)}, column(n), t)
	}
	// pairs leaves in a: [a0+a2, a1+a3, b0+b2, b1+b3] per lane.
	pairs := func(a, b int) {
		e.op("VSHUFPS $0xEE, Z%d, Z%d, Z%d", b, a, t)
		e.op("VSHUFPS $0x44, Z%d, Z%d, Z%d", b, a, a)
		e.op("VADDPS Z%d, Z%d, Z%d", t, a, a)
	}
	// singles leaves in a one sum per column: those of a, then those of b.
	singles := func(a, b int) {
		e.op("VSHUFPS $0xDD, Z%d, Z%d, Z%d", b, a, t)
		e.op("VSHUFPS $0x88, Z%d, Z%d, Z%d", b, a, a)
		e.op("VADDPS Z%d, Z%d, Z%d", t, a, a)
	}
	for n := 0; n < k.nr; n += 4 {
		width := min(4, k.nr-n)
		a := column(n)
		pairs(a, column(n+1))
		last := a
		if width == 4 {
			last = column(n + 2)
			pairs(last, column(n+3))
		}
		singles(a, last)
		for m := range k.mr {
			from := a
			if m > 0 {
				from = t
				e.op("VEXTRACTF32X4 $%d, Z%d, X%d", m, a, t)
			}
			if width == 4 {
				e.op("VMOVUPS X%d, %s", from, k.yAt(m, n))
			} else {
				e.op("VMOVLPS X%d, %s", from, k.yAt(m, n))
			}
		}
	}
}
