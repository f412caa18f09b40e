package main

import "fmt"

// emitRows writes the fused row kernels: up to rowsMR rows of x against groups
// of four (or one) rows of weights, which are decoded in registers. They read
// every weight once and are meant for weights that come from memory.
//
//	AX arguments    CX, DX one, three strides of x
//	R8 group of w   R9, R10 one, three strides of w
//	SI, R11, BX cursors in x, w and the next group of w
//	DI y            R12 steps left  R13 scales   R15 steps of this block
func emitRows(e *emitter, s *isa) {
	e.raw("")
	e.raw("// Clears the copy of the sign that a sign-extending shift leaves in a half's exponent.")
	constant(e, s, "halfMask"+s.name, 0xBFFFBFFF)
	e.raw("// The bits of an e4m3 code without its sign.")
	constant(e, s, "codeMask"+s.name, 0x7F7F7F7F)
	for _, w := range []weight{f32, bf16, fp8, code} {
		for mr := 1; mr <= s.rowsMR; mr++ {
			for _, nr := range []int{4, 1} {
				(&rows{isa: s, w: w, mr: mr, nr: nr}).emit(e)
			}
		}
	}
}

// constant defines a read-only vector of equal words.
func constant(e *emitter, s *isa, name string, word uint32) {
	for i := range s.lanes {
		e.raw("DATA %s<>+%d(SB)/4, $%#x", name, 4*i, word)
	}
	e.raw("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, s.bytes())
}

// rows is one kernel: registers [0, mr*nr) are the sums, then unroll*mr for x,
// then decode temporaries, then constants at the top.
type rows struct {
	*isa
	w      weight
	mr, nr int
	unroll int
}

func (k *rows) acc(m, n int) int { return m*k.nr + n }
func (k *rows) x(m, u int) int   { return k.mr*k.nr + m*k.unroll + u }
func (k *rows) temp(i int) int   { return k.mr*k.nr + k.mr*k.unroll + i }
func (k *rows) xAt(m, u int) string {
	return spaced("SI", "CX", "DX", "", u*k.bytes(), m)
}
func (k *rows) wAt(n, u int) string {
	return spaced("R11", "R9", "R10", "", u*k.lanes*k.w.size, n)
}

// Registers of the e4m3 decoder.
func (k *rows) nan() int   { return k.regs - 1 }
func (k *rows) scale() int { return k.regs - 2 }
func (k *rows) half() int  { return k.regs - 3 }
func (k *rows) codes() int { return k.regs - 4 }

func (k *rows) emit(e *emitter) {
	k.unroll = 2
	if k.wide() && k.w.coded() && k.mr <= 2 {
		k.unroll = 4
	}
	name := fmt.Sprintf("rows%s%dx%d%s", k.w.name, k.mr, k.nr, k.name)
	e.function(name, "rowsArgs", fmt.Sprintf("%d rows of x by groups of %d rows of %s weights.", k.mr, k.nr, k.w.name))
	e.op("MOVQ rowsArgs_ldx(AX), CX")
	e.op("LEAQ (CX)(CX*2), DX")
	e.op("MOVQ rowsArgs_w(AX), R8")
	e.op("MOVQ rowsArgs_ldw(AX), R9")
	e.op("LEAQ (R9)(R9*2), R10")
	e.op("MOVQ rowsArgs_y(AX), DI")
	if k.w.coded() {
		k.zero(e, k.nan())
		if k.wide() {
			e.op("VMOVUPS halfMask%s<>(SB), %s", k.name, k.r(k.half()))
			e.op("VMOVUPS codeMask%s<>(SB), %s", k.name, k.r(k.codes()))
		}
	}
	if k.nr == 4 && k.wide() {
		e.op("MOVL $0x1111, R11")
		e.op("KMOVW R11, K1")
	}
	group := e.label("group")
	e.at(group)
	for i := range k.mr * k.nr {
		k.zero(e, i)
	}
	e.op("MOVQ rowsArgs_x(AX), SI")
	e.op("MOVQ R8, R11")
	e.op("LEAQ (R8)(R9*%d), BX", k.nr)
	e.op("MOVQ rowsArgs_steps(AX), R12")
	if k.w == fp8 {
		k.blocks(e)
	} else {
		e.op("MOVQ R12, R15")
		k.steps(e)
	}
	k.tail(e)
	for m := range k.mr {
		k.reduce(e, m)
	}
	e.op("ADDQ $%d, DI", 4*k.nr)
	if k.nr == 4 {
		e.op("LEAQ (R8)(R9*4), R8")
	} else {
		e.op("ADDQ R9, R8")
	}
	e.op("DECQ rowsArgs_groups(AX)")
	e.op("JNZ %s", group)
	if k.w.coded() {
		e.op("VMOVUPS %s, rowsArgs_codes(AX)", k.r(k.nan()))
	}
	e.ret()
}

// blocks runs the steps of each 128 columns under their scale. A half decoded
// from e4m3 bits is 2^-8 of the value, which the scale makes up for.
func (k *rows) blocks(e *emitter) {
	perBlock := 128 / k.lanes
	block, full, done := e.label("block"), e.label("full"), e.label("blocksdone")
	e.op("MOVQ rowsArgs_scale(AX), R13")
	e.at(block)
	e.op("TESTQ R12, R12")
	e.op("JLE %s", done)
	e.op("MOVQ R12, R15")
	e.op("CMPQ R15, $%d", perBlock)
	e.op("JLE %s", full)
	e.op("MOVQ $%d, R15", perBlock)
	e.at(full)
	e.op("SUBQ R15, R12")
	e.op("VBROADCASTSS (R13), %s", k.r(k.scale()))
	e.op("VBROADCASTSS rowsArgs_bias(AX), %s", k.r(k.temp(0)))
	e.op("VMULPS %s, %s, %s", k.r(k.temp(0)), k.r(k.scale()), k.r(k.scale()))
	e.op("ADDQ $4, R13")
	k.prefetch(e, 128)
	k.steps(e)
	e.op("JMP %s", block)
	e.at(done)
}

// steps runs R15 steps of one register each, unrolled while enough are left.
func (k *rows) steps(e *emitter) {
	many, few, one, done := e.label("many"), e.label("few"), e.label("one"), e.label("done")
	e.op("SUBQ $%d, R15", k.unroll)
	e.op("JLT %s", few)
	e.at(many)
	k.step(e, k.unroll)
	e.op("SUBQ $%d, R15", k.unroll)
	e.op("JGE %s", many)
	e.at(few)
	e.op("ADDQ $%d, R15", k.unroll)
	e.op("JLE %s", done)
	e.at(one)
	k.step(e, 1)
	e.op("DECQ R15")
	e.op("JNZ %s", one)
	e.at(done)
}

// step multiplies u registers of every row. Sums of one element take u in
// ascending order.
func (k *rows) step(e *emitter, u int) {
	for m := range k.mr {
		for i := range u {
			e.op("VMOVUPS %s, %s", k.xAt(m, i), k.r(k.x(m, i)))
		}
	}
	for n := range k.nr {
		if k.w.coded() {
			k.watch(e, n, u)
		}
		for i := 0; i < u; {
			got := k.decode(e, n, i, u-i)
			for j := range got {
				for m := range k.mr {
					e.op("VFMADD231PS %s, %s, %s", k.r(k.x(m, i+j)), k.r(k.temp(j)), k.r(k.acc(m, n)))
				}
			}
			i += got
		}
	}
	if k.w != fp8 {
		k.prefetch(e, u*k.lanes*k.w.size)
	}
	e.op("ADDQ $%d, SI", u*k.bytes())
	e.op("ADDQ $%d, R11", u*k.lanes*k.w.size)
}

// prefetch requests size bytes of every row of the next group, which follows in this
// call or, at its end, begins the next call. Rows are too short for the hardware
// prefetcher: an e4m3 row of 4096 weights is a single page.
func (k *rows) prefetch(e *emitter, size int) {
	for n := range k.nr {
		for line := 0; line < size; line += 64 {
			e.op("PREFETCHT0 %s", spaced("BX", "R9", "R10", "", line, n))
		}
	}
	e.op("ADDQ $%d, BX", size)
}

// watch keeps the largest code, without its sign, that was read: 0x7F is NaN, which
// the decoder does not produce.
func (k *rows) watch(e *emitter, n, u int) {
	size := u * k.lanes
	t, codes, nan := k.temp(0), k.codes(), k.nan()
	name := map[int]string{64: "Z", 32: "Y", 16: "X"}[size]
	if size == 8 {
		e.op("VMOVQ %s, X%d", k.wAt(n, 0), t)
		e.op("VPAND codeMask%s<>(SB), X%d, X%d", k.name, t, t)
		e.op("VPMAXUB X%d, X%d, X%d", t, nan, nan)
		return
	}
	switch {
	case k.wide() && size == 64:
		e.op("VPANDD %s, Z%d, Z%d", k.wAt(n, 0), codes, t)
	case k.wide():
		e.op("VPANDD %s, %s%d, %s%d", k.wAt(n, 0), name, codes, name, t)
		e.op("VPMAXUB Z%d, Z%d, Z%d", t, nan, nan)
		return
	default:
		e.op("VMOVDQU %s, %s%d", k.wAt(n, 0), name, t)
		e.op("VPAND codeMask%s<>(SB), %s%d, %s%d", k.name, name, t, name, t)
	}
	e.op("VPMAXUB %s%d, %s%d, %s%d", name, t, name, nan, name, nan)
}

// decode brings weights of row n from step u on to registers temp(0..), at
// most most of them, and returns how many.
func (k *rows) decode(e *emitter, n, u, most int) int {
	t := k.temp(0)
	switch k.w {
	case f32:
		e.op("VMOVUPS %s, %s", k.wAt(n, u), k.r(t))
	case bf16:
		e.op("VPMOVZXWD %s, %s", k.wAt(n, u), k.r(t))
		e.op("VPSLLD $16, %s, %s", k.r(t), k.r(t))
	case fp8, code:
		if most >= 2 {
			// The upper halves pass through memory: converting from there
			// spares the shuffle port two instructions of ten.
			k.halves(e, k.wAt(n, u), k.reg, t)
			slot := (n*k.unroll/2 + u/2) * k.bytes()
			e.op("VMOVUPS %s, rowsArgs_spill+%d(AX)", k.r(t), slot)
			e.op("VCVTPH2PS rowsArgs_spill+%d(AX), %s", slot+k.bytes()/2, k.r(t+1))
			e.op("VCVTPH2PS %s, %s", k.h(t), k.r(t))
			k.rescale(e, t)
			k.rescale(e, t+1)
			return 2
		}
		k.halves(e, k.wAt(n, u), k.isa.half, t)
		e.op("VCVTPH2PS %s, %s", k.h(t), k.r(t))
		k.rescale(e, t)
	}
	return 1
}

// rescale multiplies decoded weights by their scale where x does not have it.
func (k *rows) rescale(e *emitter, t int) {
	if k.w == fp8 {
		e.op("VMULPS %s, %s, %s", k.r(k.scale()), k.r(t), k.r(t))
	}
}

// halves turns e4m3 codes into float16 numbers of 2^-8 their value: the
// exponent and mantissa bits are the same, three and seven places up.
func (k *rows) halves(e *emitter, at, prefix string, t int) {
	e.op("VPMOVSXBW %s, %s%d", at, prefix, t)
	e.op("VPSLLW $7, %s%d, %s%d", prefix, t, prefix, t)
	if k.wide() {
		e.op("VPANDD %s%d, %s%d, %s%d", prefix, k.half(), prefix, t, prefix, t)
	} else {
		e.op("VPAND halfMask%s<>(SB), %s%d, %s%d", k.name, prefix, t, prefix, t)
	}
}

// tail adds one step of already widened, zero-padded registers.
func (k *rows) tail(e *emitter) {
	none := e.label("notail")
	e.op("MOVQ rowsArgs_xTail(AX), SI")
	e.op("TESTQ SI, SI")
	e.op("JZ %s", none)
	e.op("MOVQ rowsArgs_wTail(AX), R11")
	for m := range k.mr {
		e.op("VMOVUPS %d(SI), %s", m*k.bytes(), k.r(k.x(m, 0)))
	}
	for n := range k.nr {
		e.op("VMOVUPS %d(R11), %s", n*k.bytes(), k.r(k.temp(0)))
		for m := range k.mr {
			e.op("VFMADD231PS %s, %s, %s", k.r(k.x(m, 0)), k.r(k.temp(0)), k.r(k.acc(m, n)))
		}
	}
	e.at(none)
}

// reduce folds the sums of row m and stores them. R13 is free by now.
func (k *rows) reduce(e *emitter, m int) {
	if m == 0 {
		e.op("MOVQ rowsArgs_ldy(AX), R13")
		e.op("LEAQ (R13)(R13*2), R12")
	}
	to := spaced("DI", "R13", "R12", "", 0, m)
	a := k.acc(m, 0)
	t := k.temp(0)
	if k.nr == 1 {
		foldOne(e, k.isa, a, t)
		e.op("VMOVSS X%d, %s", a, to)
		return
	}
	if !k.wide() {
		e.op("VHADDPS Y%d, Y%d, Y%d", a+1, a, a)
		e.op("VHADDPS Y%d, Y%d, Y%d", a+3, a+2, a+2)
		e.op("VHADDPS Y%d, Y%d, Y%d", a+2, a, a)
		e.op("VEXTRACTF128 $1, Y%d, X%d", a, t)
		e.op("VADDPS X%d, X%d, X%d", t, a, a)
		e.op("VMOVUPS X%d, %s", a, to)
		return
	}
	foldFour(e, [4]int{a, a + 1, a + 2, a + 3}, a, t)
	e.op("VSHUFPS $0x4E, Z%d, Z%d, Z%d", a, a, t)
	e.op("VADDPS Z%d, Z%d, Z%d", t, a, a)
	e.op("VSHUFPS $0xB1, Z%d, Z%d, Z%d", a, a, t)
	e.op("VADDPS Z%d, Z%d, Z%d", t, a, a)
	e.op("VCOMPRESSPS Z%d, K1, Z%d", a, a)
	e.op("VMOVUPS X%d, %s", a, to)
}

// foldOne leaves the sum of all lanes of a in its lane 0. The tree is the one
// of the wider folds: with 16 lanes, pairs 8, 4, 2 and 1 apart; with 8 lanes,
// adjacent lanes, adjacent pairs, then the two halves.
func foldOne(e *emitter, s *isa, a, t int) {
	if !s.wide() {
		e.op("VHADDPS Y%d, Y%d, Y%d", a, a, a)
		e.op("VHADDPS Y%d, Y%d, Y%d", a, a, a)
		e.op("VEXTRACTF128 $1, Y%d, X%d", a, t)
		e.op("VADDSS X%d, X%d, X%d", t, a, a)
		return
	}
	e.op("VEXTRACTF64X4 $1, Z%d, Y%d", a, t)
	e.op("VADDPS Y%d, Y%d, Y%d", t, a, a)
	e.op("VEXTRACTF32X4 $1, Y%d, X%d", a, t)
	e.op("VADDPS X%d, X%d, X%d", t, a, a)
	e.op("VSHUFPS $0x4E, X%d, X%d, X%d", a, a, t)
	e.op("VADDPS X%d, X%d, X%d", t, a, a)
	e.op("VSHUFPS $0xB1, X%d, X%d, X%d", a, a, t)
	e.op("VADDPS X%d, X%d, X%d", t, a, a)
}

// foldFour halves four 16-lane sums twice: 128-bit lane i of to holds the four
// partial sums of in[i]. in is consumed; t is a temporary.
func foldFour(e *emitter, in [4]int, to, t int) {
	pair := func(lo, hi int, a, b, to int) {
		e.op("VSHUFF64X2 $%#x, Z%d, Z%d, Z%d", hi, b, a, t)
		e.op("VSHUFF64X2 $%#x, Z%d, Z%d, Z%d", lo, b, a, to)
		e.op("VADDPS Z%d, Z%d, Z%d", t, to, to)
	}
	pair(0x44, 0xEE, in[0], in[1], in[0])
	pair(0x44, 0xEE, in[2], in[3], in[2])
	pair(0x88, 0xDD, in[0], in[2], to)
}
