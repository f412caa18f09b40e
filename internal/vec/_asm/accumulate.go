package main

import "fmt"

// emitAccumulate writes the transposed products: lanes run along the output
// row, every lane is one running sum that starts at y, and d ascends.
//
//	AX arguments   SI x   CX, DX, R12 one, three, five strides of x
//	R8 w           R9 stride of w             R13 d left
//	DI y           R10, R11, BX one, three, five strides of y
//
// Kernels for a single row fetch weights 2^aheadBits rows before they need them.
func emitAccumulate(e *emitter) {
	for mr := 1; mr <= e.accMR; mr++ {
		(&accumulate{emitter: e, w: f32, mr: mr, vecs: e.accVecs}).write()
	}
	e.raw("")
	e.constant("accHalfMask"+e.name, 0xBFFFBFFF)
	e.constant("accCodeMask"+e.name, 0x7F7F7F7F)
	for _, w := range []weight{f32, bf16, fp8} {
		(&accumulate{emitter: e, w: w, mr: 1, vecs: e.wideVecs}).write()
		(&accumulate{emitter: e, w: w, mr: 1, vecs: e.accVecs}).writePack()
	}
}

const aheadBits = 5

// accumulate is one kernel: mr*vecs sums, one broadcast of x, then the decoded
// weights.
type accumulate struct {
	*emitter
	w        weight
	mr, vecs int
}

func (k *accumulate) acc(m, v int) int { return m*k.vecs + v }
func (k *accumulate) x() int           { return k.mr * k.vecs }
func (k *accumulate) t(i int) int      { return k.mr*k.vecs + 1 + i }

// Registers of the e4m3 decoder, low enough for every encoding.
func (k *accumulate) nan() int   { return k.t(2) }
func (k *accumulate) scale() int { return k.t(3) }

func (k *accumulate) wAt(v int) string {
	return fmt.Sprintf("%d(R8)", v*k.lanes*k.w.size)
}

func (k *accumulate) write() {
	name := fmt.Sprintf("acc%s%dx%d%s", k.w.name, k.mr, k.vecs*k.lanes, k.name)
	k.function(name, "accArgs", fmt.Sprintf("%d rows of x times rows of %d %s weights.", k.mr, k.vecs*k.lanes,
		k.w.name))
	k.op(`
		MOVQ accArgs_x(AX), SI
		MOVQ accArgs_w(AX), R8
		MOVQ accArgs_ldw(AX), R9
		MOVQ accArgs_y(AX), DI
		MOVQ accArgs_d(AX), R13`)
	if k.mr > 1 {
		k.op(`
			MOVQ accArgs_ldx(AX), CX
			LEAQ (CX)(CX*2), DX
			LEAQ (CX)(CX*4), R12
			MOVQ accArgs_ldy(AX), R10
			LEAQ (R10)(R10*2), R11
			LEAQ (R10)(R10*4), BX`)
	}
	if k.w == fp8 {
		k.zero(k.nan())
		k.op("VBROADCASTSS accArgs_scale(AX), V%d", k.scale())
	}
	k.each(func(m, v int) { k.op("VMOVUPS %s, V%d", k.yAt(m, v), k.acc(m, v)) })
	fetch := k.mr == 1 && k.vecs == k.wideVecs // weights that are used by one row only are read from memory
	if fetch {
		k.op(`
			MOVQ R9, CX
			SHLQ $%d, CX`, aheadBits)
	}
	k.loop("loop", "R13", func() {
		for at := 0; fetch && at < k.vecs*k.lanes*k.w.size; at += 64 {
			k.op("PREFETCHT0 %d(R8)(CX*1)", at)
		}
		k.step()
		k.op(`
			ADDQ $4, SI
			ADDQ R9, R8`)
	})
	if k.w == fp8 {
		k.refuseNaN()
	}
	k.each(func(m, v int) { k.op("VMOVUPS V%d, %s", k.acc(m, v), k.yAt(m, v)) })
	k.ret()
}

func (k *accumulate) each(f func(m, v int)) {
	for m := range k.mr {
		for v := range k.vecs {
			f(m, v)
		}
	}
}

func (k *accumulate) yAt(m, v int) string {
	return spaced("DI", "R10", "R11", "BX", v*k.bytes(), m)
}

func (k *accumulate) step() {
	if k.mr == 1 {
		k.op("VBROADCASTSS (SI), V%d", k.x())
		for v := 0; v < k.vecs; {
			got := k.decode(v)
			for i := range got {
				k.op("VFMADD231PS V%d, V%d, V%d", k.t(i), k.x(), k.acc(0, v+i))
			}
			v += got
		}
		return
	}
	for v := range k.vecs {
		k.op("VMOVUPS %s, V%d", k.wAt(v), k.t(v))
	}
	for m := range k.mr {
		k.op("VBROADCASTSS %s, V%d", spaced("SI", "CX", "DX", "R12", 0, m), k.x())
		for v := range k.vecs {
			k.op("VFMADD231PS V%d, V%d, V%d", k.t(v), k.x(), k.acc(m, v))
		}
	}
}

// decode loads register v of the row of weights, and with e4m3 weights also the next one, as float32 into t(0) and
// t(1). It returns the number of loaded registers. rows.go describes the e4m3 arithmetic.
func (k *accumulate) decode(v int) int {
	t, u := k.t(0), k.t(1)
	switch k.w {
	case f32:
		k.op("VMOVUPS %s, V%d", k.wAt(v), t)
		return 1
	case bf16:
		k.op("VPMOVZXWD %s, V%d", k.wAt(v), t)
		k.op("VPSLLD $16, V%d, V%d", t, t)
		return 1
	}
	k.op("VMOVDQU %s, H%d", k.wAt(v), t)
	k.op("VPAND accCodeMask%s<>(SB), H%d, H%d", k.name, t, t)
	k.op("VPMAXUB H%d, H%d, H%d", t, k.nan(), k.nan())
	k.op("VPMOVSXBW %s, V%d", k.wAt(v), t)
	k.op("VPSLLW $7, V%d, V%d", t, t)
	k.and(fmt.Sprintf("accHalfMask%s<>(SB)", k.name), t, t)
	if k.wide() {
		k.op("VEXTRACTI64X4 $1, Z%d, Y%d", t, u)
	} else {
		k.op("VEXTRACTI128 $1, Y%d, X%d", t, u)
	}
	for _, r := range []int{t, u} {
		k.op("VCVTPH2PS H%d, V%d", r, r)
		k.op("VMULPS V%d, V%d, V%d", k.scale(), r, r)
	}
	return 2
}

// emitPack writes the kernel that widens a block of weights, d rows of vecs
// registers, to consecutive rows at y. Registers are those of decode.
func (k *accumulate) writePack() {
	cols := k.vecs * k.lanes
	k.function(fmt.Sprintf("pack%s%d%s", k.w.name, cols, k.name), "accArgs",
		fmt.Sprintf("widens rows of %d %s weights to y.", cols, k.w.name))
	k.op(`
		MOVQ accArgs_w(AX), R8
		MOVQ accArgs_ldw(AX), R9
		MOVQ accArgs_y(AX), DI
		MOVQ accArgs_d(AX), R13`)
	if k.w == fp8 {
		k.zero(k.nan())
		k.op("VBROADCASTSS accArgs_scale(AX), V%d", k.scale())
	}
	k.loop("loop", "R13", func() {
		for v := 0; v < k.vecs; {
			got := k.decode(v)
			for i := range got {
				k.op("VMOVUPS V%d, %d(DI)", k.t(i), (v+i)*k.bytes())
			}
			v += got
		}
		k.op(`
			ADDQ R9, R8
			ADDQ $%d, DI`, cols*4)
	})
	if k.w == fp8 {
		k.reportNaN()
	}
	k.ret()
}

// reportNaN sets nan, and R12, to the bytes where a NaN code was read, which
// the decoder does not produce.
func (k *accumulate) reportNaN() {
	seen := k.nan()
	k.op(`
		VPCMPEQB accCodeMask%s<>(SB), H%d, H%d
		VPMOVMSKB H%d, R12
		MOVQ R12, accArgs_nan(AX)`, k.name, seen, seen, seen)
}

// refuseNaN returns without writing y if a NaN code was read; the caller then uses the kernels that widen first.
func (k *accumulate) refuseNaN() {
	clean := k.label("clean")
	k.reportNaN()
	k.op(`
		TESTQ R12, R12
		JZ %s`, clean)
	k.ret()
	k.at(clean)
}
