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
func emitPanels(e *emitter) {
	for _, p := range e.panels {
		(&panel{emitter: e, mr: p[0], nr: p[1]}).write()
	}
}

type panel struct {
	*emitter
	mr, nr int
}

func (k *panel) acc(m, n int) int { return m*k.nr + n }
func (k *panel) x(m int) int      { return k.mr*k.nr + m }
func (k *panel) w() int           { return k.mr*k.nr + k.mr }

func (k *panel) write() {
	name := fmt.Sprintf("panel%dx%d%s", k.mr, k.nr, k.name)
	k.function(name, "panelArgs",
		fmt.Sprintf("tiles of %d rows of x by one packed panel of %d rows of weights.", k.mr, k.nr))
	k.op(`
		MOVQ panelArgs_x(AX), BX
		MOVQ panelArgs_ldx(AX), CX
		LEAQ (CX)(CX*2), DX
		MOVQ panelArgs_y(AX), DI
		MOVQ panelArgs_sums(AX), R8
		MOVQ panelArgs_tiles(AX), R13
		MOVQ panelArgs_ldw(AX), R14
		LEAQ (R14)(R14*2), R15`)
	if k.wide() {
		k.op(`
			MOVQ panelArgs_mask(AX), R12
			KMOVW R12, K1`)
	}
	tile, fresh, ready := k.label("tile"), k.label("fresh"), k.label("ready")
	k.at(tile)
	k.fetch()
	k.fetchY()
	k.op(`
		MOVQ BX, SI
		MOVQ panelArgs_w(AX), R11
		LEAQ (R14)(R14*4), R9
		CMPQ panelArgs_first(AX), $0
		JNE %s`, fresh)
	for i := range k.mr * k.nr {
		k.op("VMOVUPS %d(R8), V%d", i*k.bytes(), i)
	}
	k.op("JMP %s", ready)
	k.at(fresh)
	for i := range k.mr * k.nr {
		k.zero(i)
	}
	k.at(ready)
	k.steps()
	k.finish()
	for range k.mr {
		k.op(`
			ADDQ CX, BX
			ADDQ R9, DI`)
	}
	k.op(`
		ADDQ $%d, R8
		DECQ R13
		JNZ %s`, k.mr*k.nr*k.bytes(), tile)
	k.ret()
}

// fetch prefetches the next lines of every weight row of the next panel.
func (k *panel) fetch() {
	line, none := k.label("line"), k.label("nofetch")
	k.op(`
		MOVQ panelArgs_lines(AX), R12
		TESTQ R12, R12
		JZ %s
		MOVQ panelArgs_ahead(AX), R11`, none)
	k.at(line)
	k.op("MOVQ R11, SI")
	for range k.nr {
		k.op(`
			PREFETCHT1 (SI)
			ADDQ panelArgs_ldAhead(AX), SI`)
	}
	k.op(`
		ADDQ $64, R11
		DECQ R12
		JNZ %s
		MOVQ R11, panelArgs_ahead(AX)`, line)
	k.at(none)
}

// fetchY prefetches the lines of y that the current tile is written to.
func (k *panel) fetchY() {
	k.op(`
		MOVQ panelArgs_ldy(AX), R9
		LEAQ (R9)(R9*2), R10`)
	for m := range k.mr {
		k.op(`
			PREFETCHT0 %s
			PREFETCHT0 %s`, k.yAt(m, 0), k.yAt(m, k.nr-1))
	}
}

func (k *panel) steps() {
	loop, tail, none := k.label("loop"), k.label("tail"), k.label("notail")
	k.op(`
		MOVQ panelArgs_steps(AX), R12
		TESTQ R12, R12
		JZ %s`, tail)
	k.at(loop)
	for m := range k.mr {
		k.op("VMOVUPS %s, V%d", spaced("SI", "CX", "DX", "", 0, m), k.x(m))
	}
	k.multiply(func(n int) {
		k.op("VMOVUPS %s, V%d", k.wAt(n), k.w())
	})
	k.op(`
		ADDQ $%d, SI
		ADDQ $%d, R11
		DECQ R12
		JNZ %s`, k.bytes(), k.bytes(), loop)
	k.at(tail)
	k.op(`
		CMPQ panelArgs_mask(AX), $0
		JE %s`, none)
	if k.wide() {
		for m := range k.mr {
			k.op("VMOVUPS.Z %s, K1, V%d", spaced("SI", "CX", "DX", "", 0, m), k.x(m))
		}
		k.multiply(func(n int) {
			k.op("VMOVUPS.Z %s, K1, V%d", k.wAt(n), k.w())
		})
	} else {
		k.op(`
			MOVQ panelArgs_maskVec(AX), R12
			VMOVUPS (R12), V%d`, k.w())
		for m := range k.mr {
			k.op("VMASKMOVPS %s, V%d, V%d", spaced("SI", "CX", "DX", "", 0, m), k.w(), k.x(m))
		}
		k.multiply(func(n int) {
			k.op("VMOVUPS (R12), V%d", k.w())
			k.op("VMASKMOVPS %s, V%d, V%d", k.wAt(n), k.w(), k.w())
		})
	}
	k.at(none)
}

// wAt returns the address of the cursor in row n of the panel.
func (k *panel) wAt(n int) string { return spaced("R11", "R14", "R15", "R9", 0, n) }

// multiply adds the products of one step of every row to the sums.
func (k *panel) multiply(load func(n int)) {
	for n := range k.nr {
		load(n)
		for m := range k.mr {
			k.op("VFMADD231PS V%d, V%d, V%d", k.x(m), k.w(), k.acc(m, n))
		}
	}
}

// finish stores the sums unchanged or, after the last block of k, adds up their lanes and writes them to y.
func (k *panel) finish() {
	fold, done := k.label("fold"), k.label("done")
	k.op(`
		MOVQ panelArgs_ldy(AX), R9
		LEAQ (R9)(R9*2), R10
		CMPQ panelArgs_last(AX), $0
		JNE %s`, fold)
	for i := range k.mr * k.nr {
		k.op("VMOVUPS V%d, %d(R8)", i, i*k.bytes())
	}
	k.op("JMP %s", done)
	k.at(fold)
	if k.wide() {
		k.foldWide()
	} else {
		k.foldNarrow()
	}
	k.at(done)
}

func (k *panel) yAt(m, n int) string { return spaced("DI", "R9", "R10", "", 4*n, m) }

// foldNarrow adds up the lanes of four 8-lane sums of a row at a time.
func (k *panel) foldNarrow() {
	for m := range k.mr {
		a, t := k.acc(m, 0), k.w()
		k.list(`
			VHADDPS Y{a+1}, Y{a}, Y{a}
			VHADDPS Y{a+3}, Y{a+2}, Y{a+2}
			VHADDPS Y{a+2}, Y{a}, Y{a}
			VEXTRACTF128 $1, Y{a}, X{t}
			VADDPS X{t}, X{a}, X{a}`, "a", a, "t", t)
		k.op("VMOVUPS X%d, %s", a, k.yAt(m, 0))
	}
}

// foldWide adds up the lanes of the sums of each column's four rows together, so that 128-bit lane m of every
// intermediate result belongs to row m, and then combines pairs of columns.
func (k *panel) foldWide() {
	t := k.w()
	column := func(n int) int { return k.acc(0, n) }
	for n := range k.nr {
		foldFour(k.emitter, [4]int{k.acc(0, n), k.acc(1, n), k.acc(2, n), k.acc(3, n)}, column(n), t)
	}
	// pairs leaves in each lane of a: [a0+a2, a1+a3, b0+b2, b1+b3].
	pairs := func(a, b int) {
		k.list(`
			VSHUFPS $0xEE, Z{b}, Z{a}, Z{t}
			VSHUFPS $0x44, Z{b}, Z{a}, Z{a}
			VADDPS Z{t}, Z{a}, Z{a}`, "b", b, "a", a, "t", t)
	}
	// singles leaves one sum per column in a: first those of a, then those of b.
	singles := func(a, b int) {
		k.list(`
			VSHUFPS $0xDD, Z{b}, Z{a}, Z{t}
			VSHUFPS $0x88, Z{b}, Z{a}, Z{a}
			VADDPS Z{t}, Z{a}, Z{a}`, "b", b, "a", a, "t", t)
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
				k.op("VEXTRACTF32X4 $%d, Z%d, X%d", m, a, t)
			}
			if width == 4 {
				k.op("VMOVUPS X%d, %s", from, k.yAt(m, n))
			} else {
				k.op("VMOVLPS X%d, %s", from, k.yAt(m, n))
			}
		}
	}
}
