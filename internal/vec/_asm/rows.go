package main

import (
	"fmt"
	"strings"
)

// emitRows writes the fused row kernels: up to rowsMR rows of x against groups
// of four (or one) rows of weights, which are decoded in registers. They read
// every weight once and are meant for weights that come from memory. The rows of
// a group belong to four runs of rows, each of which is read from its first byte to its last.
//
//	AX arguments    CX, DX one, three strides of x
//	R8 group of w   R9, R10 one, three distances of its rows
//	SI, R11 cursors in x and w
//	DI y            BX distance of results of a group
//	R12 steps left  R13 scales   R15 steps of this block
func emitRows(e *emitter) {
	e.raw("")
	e.raw("// Clears the copy of the sign that a sign-extending shift leaves in a half's exponent.")
	e.constant("halfMask"+e.name, 0xBFFFBFFF)
	e.raw("// The bits of an e4m3 code without its sign.")
	e.constant("codeMask"+e.name, 0x7F7F7F7F)
	for _, w := range []weight{f32, bf16, fp8, code} {
		for mr := 1; mr <= e.rowsMR; mr++ {
			for _, nr := range []int{4, 1} {
				(&rows{emitter: e, w: w, mr: mr, nr: nr}).write()
			}
		}
	}
}

// constant defines a read-only vector of equal words.
func (e *emitter) constant(name string, word uint32) {
	e.splats[name] = true
	for i := range e.lanes {
		e.raw("DATA %s<>+%d(SB)/4, $%#x", name, 4*i, word)
	}
	e.raw("GLOBL %s<>(SB), RODATA|NOPTR, $%d", name, e.bytes())
}

// rows writes one kernel. Registers [0, mr*nr) are the sums, followed by unroll*mr registers for x and by decode
// temporaries; constants are in the highest registers.
type rows struct {
	*emitter
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

func (k *rows) write() {
	k.unroll = 2
	if k.wide() && k.w.coded() && k.mr <= 2 {
		k.unroll = 4
	}
	name := fmt.Sprintf("rows%s%dx%d%s", k.w.name, k.mr, k.nr, k.name)
	k.function(name, "rowsArgs", fmt.Sprintf("%d rows of x by groups of %d rows of %s weights.", k.mr, k.nr, k.w.name))
	k.op(`
		MOVQ rowsArgs_ldx(AX), CX
		LEAQ (CX)(CX*2), DX
		MOVQ rowsArgs_w(AX), R8
		MOVQ rowsArgs_ldw(AX), R9
		LEAQ (R9)(R9*2), R10
		MOVQ rowsArgs_y(AX), DI
		MOVQ rowsArgs_apart(AX), BX`)
	if k.w.coded() {
		k.zero(k.nan())
		if k.wide() {
			k.op("VMOVUPS halfMask%s<>(SB), V%d", k.name, k.half())
			k.op("VMOVUPS codeMask%s<>(SB), V%d", k.name, k.codes())
		}
	}
	if k.nr == 4 && k.wide() {
		k.op(`
			MOVL $0x1111, R11
			KMOVW R11, K1`)
	}
	k.loop("group", "rowsArgs_groups(AX)", func() {
		for i := range k.mr * k.nr {
			k.zero(i)
		}
		k.op(`
			MOVQ rowsArgs_x(AX), SI
			MOVQ R8, R11
			MOVQ rowsArgs_steps(AX), R12`)
		if k.w == fp8 {
			k.blocks()
		} else {
			k.op("MOVQ R12, R15")
			k.steps()
		}
		k.tail()
		for m := range k.mr {
			k.reduce(m)
		}
		k.op(`
			ADDQ $4, DI
			ADDQ rowsArgs_next(AX), R8`)
	})
	if k.w.coded() {
		k.op("VMOVUPS V%d, rowsArgs_codes(AX)", k.nan())
	}
	k.ret()
}

// blocks writes the loop over blocks of columns that share a scale. A half-precision number decoded from e4m3 bits is
// 2^-8 of the value; the scale includes the factor 2^8.
func (k *rows) blocks() {
	block, full, done := k.label("block"), k.label("full"), k.label("blocksdone")
	k.op("MOVQ rowsArgs_scale(AX), R13")
	k.at(block)
	k.op(`
		TESTQ R12, R12
		JLE %s
		MOVQ R12, R15
		CMPQ R15, rowsArgs_each(AX)
		JLE %s
		MOVQ rowsArgs_each(AX), R15`, done, full)
	k.at(full)
	k.op(`
		SUBQ R15, R12
		VBROADCASTSS (R13), V%d
		VBROADCASTSS rowsArgs_bias(AX), V%d`, k.scale(), k.temp(0))
	k.op(`
		VMULPS V%d, V%d, V%d
		ADDQ $4, R13`, k.temp(0), k.scale(), k.scale())
	k.prefetch(128)
	k.steps()
	k.op("JMP %s", block)
	k.at(done)
}

// steps writes R15 steps of one register each, unrolled while enough steps are left.
func (k *rows) steps() {
	many, few, one, done := k.label("many"), k.label("few"), k.label("one"), k.label("done")
	k.op(`
		SUBQ $%d, R15
		JLT %s`, k.unroll, few)
	k.at(many)
	k.step(k.unroll)
	k.op(`
		SUBQ $%d, R15
		JGE %s`, k.unroll, many)
	k.at(few)
	k.op(`
		ADDQ $%d, R15
		JLE %s`, k.unroll, done)
	k.at(one)
	k.step(1)
	k.op(`
		DECQ R15
		JNZ %s`, one)
	k.at(done)
}

// step multiplies u registers of every row. It adds them to the sum of an element in ascending order.
func (k *rows) step(u int) {
	for m := range k.mr {
		for i := range u {
			k.op("VMOVUPS %s, V%d", k.xAt(m, i), k.x(m, i))
		}
	}
	if k.w.coded() && u > 1 {
		// Halves of all rows are stored before the first of them is converted from memory: a load that follows its
		// store closely has to wait.
		for n := range k.nr {
			k.watch(n, u)
			for i := 0; i < u; i += 2 {
				k.halves(k.wAt(n, i), k.reg, k.temp(0))
				k.op("VMOVUPS V%d, %s", k.temp(0), k.spill(n, i))
			}
		}
	}
	for n := range k.nr {
		for i := range u {
			t := k.temp(i % 2)
			k.decode(n, i, u, t)
			for m := range k.mr {
				k.op("VFMADD231PS V%d, V%d, V%d", k.x(m, i), t, k.acc(m, n))
			}
		}
	}
	if k.w != fp8 {
		k.prefetch(u * k.lanes * k.w.size)
	}
	k.op(`
		ADDQ $%d, SI
		ADDQ $%d, R11`, u*k.bytes(), u*k.lanes*k.w.size)
}

// prefetch prefetches size bytes of every row, rowsAhead bytes further on in its run.
func (k *rows) prefetch(size int) {
	for n := range k.nr {
		for line := 0; line < size; line += 64 {
			k.op("PREFETCHT0 %s", spaced("R11", "R9", "R10", "", rowsAhead+line, n))
		}
	}
}

// rowsAhead is the distance of prefetched bytes.
const rowsAhead = 1024

// watch updates the largest code that was read, without its sign: 0x7F is NaN, which the decoder does not produce.
func (k *rows) watch(n, u int) {
	size := u * k.lanes
	t, codes, nan := k.temp(0), k.codes(), k.nan()
	name := map[int]string{64: "Z", 32: "Y", 16: "X"}[size]
	if size == 8 {
		k.op("VMOVQ %s, X%d", k.wAt(n, 0), t)
		k.list(`
			VPAND codeMask{name}<>(SB), X{t}, X{t}
			VPMAXUB X{t}, X{nan}, X{nan}`, "name", k.name, "t", t, "nan", nan)
		return
	}
	switch {
	case k.wide() && size == 64:
		k.op("VPANDD %s, Z%d, Z%d", k.wAt(n, 0), codes, t)
	case k.wide():
		k.op("VPANDD %s, %s%d, %s%d", k.wAt(n, 0), name, codes, name, t)
		k.op("VPMAXUB Z%d, Z%d, Z%d", t, nan, nan)
		return
	default:
		k.op("VMOVDQU %s, %s%d", k.wAt(n, 0), name, t)
		k.op("VPAND codeMask%s<>(SB), %s%d, %s%d", k.name, name, t, name, t)
	}
	k.op("VPMAXUB %s%d, %s%d, %s%d", name, t, name, nan, name, nan)
}

// spill returns the place of the halves of step u of row n.
func (k *rows) spill(n, u int) string {
	return fmt.Sprintf("rowsArgs_spill+%d(AX)", (n*k.unroll+u)*k.bytes()/2)
}

// decode loads the weights of row n and step i of u into register t.
func (k *rows) decode(n, i, u, t int) {
	switch k.w {
	case f32:
		k.op("VMOVUPS %s, V%d", k.wAt(n, i), t)
	case bf16:
		k.op("VPMOVZXWD %s, V%d", k.wAt(n, i), t)
		k.op("VPSLLD $16, V%d, V%d", t, t)
	case fp8, code:
		if u > 1 {
			k.op("VCVTPH2PS %s, V%d", k.spill(n, i), t)
		} else {
			k.watch(n, 1)
			k.halves(k.wAt(n, i), k.isa.half, t)
			k.op("VCVTPH2PS H%d, V%d", t, t)
		}
		k.rescale(t)
	}
}

// rescale multiplies decoded weights by their scale, if x does not include it.
func (k *rows) rescale(t int) {
	if k.w == fp8 {
		k.op("VMULPS V%d, V%d, V%d", k.scale(), t, t)
	}
}

// halves converts e4m3 codes to half-precision numbers of 2^-8 their value: exponent and mantissa bits are unchanged,
// three and seven places higher.
func (k *rows) halves(at, prefix string, t int) {
	k.list(`
		VPMOVSXBW {at}, {prefix}{t}
		VPSLLW $7, {prefix}{t}, {prefix}{t}`, "at", at, "prefix", prefix, "t", t)
	if k.wide() {
		k.op("VPANDD %s%d, %s%d, %s%d", prefix, k.half(), prefix, t, prefix, t)
	} else {
		k.op("VPAND halfMask%s<>(SB), %s%d, %s%d", k.name, prefix, t, prefix, t)
	}
}

// tail adds the products of one step of registers that are already widened and padded with zeros.
func (k *rows) tail() {
	none := k.label("notail")
	k.op(`
		MOVQ rowsArgs_xTail(AX), SI
		TESTQ SI, SI
		JZ %s
		MOVQ rowsArgs_wTail(AX), R11`, none)
	for m := range k.mr {
		k.op("VMOVUPS %d(SI), V%d", m*k.bytes(), k.x(m, 0))
	}
	for n := range k.nr {
		k.op("VMOVUPS %d(R11), V%d", n*k.bytes(), k.temp(0))
		for m := range k.mr {
			k.op("VFMADD231PS V%d, V%d, V%d", k.x(m, 0), k.temp(0), k.acc(m, n))
		}
	}
	k.at(none)
}

// reduce adds up the lanes of the sums of row m and stores them. SI, R11, R12, R13 and R15 are free at this point.
func (k *rows) reduce(m int) {
	if m == 0 {
		k.op(`
			MOVQ rowsArgs_ldy(AX), R13
			LEAQ (R13)(R13*2), R12
			LEAQ (BX)(BX*2), R15`)
	}
	to := spaced("DI", "R13", "R12", "", 0, m)
	a := k.acc(m, 0)
	t := k.temp(0)
	if k.nr == 1 {
		foldOne(k.emitter, a, t)
		k.op("VMOVSS X%d, %s", a, to)
		return
	}
	if !k.wide() {
		k.list(`
			VHADDPS Y{a+1}, Y{a}, Y{a}
			VHADDPS Y{a+3}, Y{a+2}, Y{a+2}
			VHADDPS Y{a+2}, Y{a}, Y{a}
			VEXTRACTF128 $1, Y{a}, X{t}
			VADDPS X{t}, X{a}, X{a}`, "a", a, "t", t)
	} else {
		foldFour(k.emitter, [4]int{a, a + 1, a + 2, a + 3}, a, t)
		k.list(`
			VSHUFPS $0x4E, Z{a}, Z{a}, Z{t}
			VADDPS Z{t}, Z{a}, Z{a}
			VSHUFPS $0xB1, Z{a}, Z{a}, Z{t}
			VADDPS Z{t}, Z{a}, Z{a}
			VCOMPRESSPS Z{a}, K1, Z{a}`, "a", a, "t", t)
	}
	if m > 0 {
		k.op("LEAQ %s, SI", to)
		to = "(SI)"
	}
	k.op("VMOVSS X%d, %s", a, to)
	for n := 1; n < 4; n++ {
		k.op("VEXTRACTPS $%d, X%d, %s", n, a, spaced(strings.Trim(to, "()"), "BX", "R15", "", 0, n))
	}
}

// foldOne adds up all lanes of register a into its lane 0, in the order of the wider folds: with 16 lanes, lanes 8, 4,
// 2 and 1 apart; with 8 lanes, adjacent lanes, adjacent pairs, then the two halves.
func foldOne(e *emitter, a, t int) {
	if !e.wide() {
		e.list(`
			VHADDPS Y{a}, Y{a}, Y{a}
			VHADDPS Y{a}, Y{a}, Y{a}
			VEXTRACTF128 $1, Y{a}, X{t}
			VADDSS X{t}, X{a}, X{a}`, "a", a, "t", t)
		return
	}
	e.list(`
		VEXTRACTF64X4 $1, Z{a}, Y{t}
		VADDPS Y{t}, Y{a}, Y{a}
		VEXTRACTF32X4 $1, Y{a}, X{t}
		VADDPS X{t}, X{a}, X{a}
		VSHUFPS $0x4E, X{a}, X{a}, X{t}
		VADDPS X{t}, X{a}, X{a}
		VSHUFPS $0xB1, X{a}, X{a}, X{t}
		VADDPS X{t}, X{a}, X{a}`, "a", a, "t", t)
}

// foldFour adds halves of four 16-lane sums twice: 128-bit lane i of `to` then holds the four partial sums of in[i]. It
// overwrites in and t.
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
