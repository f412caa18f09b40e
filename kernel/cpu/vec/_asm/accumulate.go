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
func emitAccumulate(e *emitter, s *isa) {
	for mr := 1; mr <= s.accMR; mr++ {
		(&accumulate{isa: s, w: f32, mr: mr, vecs: s.accVecs}).emit(e)
	}
	e.raw("")
	constant(e, s, "accHalfMask"+s.name, 0xBFFFBFFF)
	constant(e, s, "accCodeMask"+s.name, 0x7F7F7F7F)
	for _, w := range []weight{f32, bf16, fp8} {
		(&accumulate{isa: s, w: w, mr: 1, vecs: s.wideVecs}).emit(e)
		(&accumulate{isa: s, w: w, mr: 1, vecs: s.accVecs}).emitPack(e)
	}
}

const aheadBits = 5

// accumulate is one kernel: mr*vecs sums, one broadcast of x, then the decoded
// weights.
type accumulate struct {
	*isa
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

func (k *accumulate) emit(e *emitter) {
	name := fmt.Sprintf("acc%s%dx%d%s", k.w.name, k.mr, k.vecs*k.lanes, k.name)
	e.function(name, "accArgs", fmt.Sprintf("%d rows of x times rows of %d %s weights.", k.mr, k.vecs*k.lanes,
		k.w.name))
	e.op("MOVQ accArgs_x(AX), SI")
	e.op("MOVQ accArgs_w(AX), R8")
	e.op("MOVQ accArgs_ldw(AX), R9")
	e.op("MOVQ accArgs_y(AX), DI")
	e.op("MOVQ accArgs_d(AX), R13")
	if k.mr > 1 {
		e.op("MOVQ accArgs_ldx(AX), CX")
		e.op("LEAQ (CX)(CX*2), DX")
		e.op("LEAQ (CX)(CX*4), R12")
		e.op("MOVQ accArgs_ldy(AX), R10")
		e.op("LEAQ (R10)(R10*2), R11")
		e.op("LEAQ (R10)(R10*4), BX")
	}
	if k.w == fp8 {
		k.zero(e, k.nan())
		e.op("VBROADCASTSS accArgs_scale(AX), %s", k.r(k.scale()))
	}
	k.each(func(m, v int) { e.op("VMOVUPS %s, %s", k.yAt(m, v), k.r(k.acc(m, v))) })
	fetch := k.mr == 1 && k.vecs == k.wideVecs // weights that only one row reads come from memory
	if fetch {
		e.op("MOVQ R9, CX")
		e.op("SHLQ $%d, CX", aheadBits)
	}
	loop := e.label("loop")
	e.at(loop)
	for at := 0; fetch && at < k.vecs*k.lanes*k.w.size; at += 64 {
		e.op("PREFETCHT0 %s(CX*1)", at16("R8", at))
	}
	k.step(e)
	e.op("ADDQ $4, SI")
	e.op("ADDQ R9, R8")
	e.op("DECQ R13")
	e.op("JNZ %s", loop)
	if k.w == fp8 {
		k.refuseNaN(e)
	}
	k.each(func(m, v int) { e.op("VMOVUPS %s, %s", k.r(k.acc(m, v)), k.yAt(m, v)) })
	e.ret()
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

func (k *accumulate) step(e *emitter) {
	if k.mr == 1 {
		e.op("VBROADCASTSS (SI), %s", k.r(k.x()))
		for v := 0; v < k.vecs; {
			got := k.decode(e, v)
			for i := range got {
				e.op("VFMADD231PS %s, %s, %s", k.r(k.t(i)), k.r(k.x()), k.r(k.acc(0, v+i)))
			}
			v += got
		}
		return
	}
	for v := range k.vecs {
		e.op("VMOVUPS %s, %s", k.wAt(v), k.r(k.t(v)))
	}
	for m := range k.mr {
		e.op("VBROADCASTSS %s, %s", spaced("SI", "CX", "DX", "R12", 0, m), k.r(k.x()))
		for v := range k.vecs {
			e.op("VFMADD231PS %s, %s, %s", k.r(k.t(v)), k.r(k.x()), k.r(k.acc(m, v)))
		}
	}
}

// decode brings register v of the row of weights, and with e4m3 the next one,
// to t(0), t(1) and returns how many. For the e4m3 arithmetic see rows.go.
func (k *accumulate) decode(e *emitter, v int) int {
	t, u := k.t(0), k.t(1)
	switch k.w {
	case f32:
		e.op("VMOVUPS %s, %s", k.wAt(v), k.r(t))
		return 1
	case bf16:
		e.op("VPMOVZXWD %s, %s", k.wAt(v), k.r(t))
		e.op("VPSLLD $16, %s, %s", k.r(t), k.r(t))
		return 1
	}
	e.op("VMOVDQU %s, %s", k.wAt(v), k.h(t))
	e.op("VPAND accCodeMask%s<>(SB), %s, %s", k.name, k.h(t), k.h(t))
	e.op("VPMAXUB %s, %s, %s", k.h(t), k.h(k.nan()), k.h(k.nan()))
	e.op("VPMOVSXBW %s, %s", k.wAt(v), k.r(t))
	e.op("VPSLLW $7, %s, %s", k.r(t), k.r(t))
	k.and(e, fmt.Sprintf("accHalfMask%s<>(SB)", k.name), t, t)
	if k.wide() {
		e.op("VEXTRACTI64X4 $1, Z%d, Y%d", t, u)
	} else {
		e.op("VEXTRACTI128 $1, Y%d, X%d", t, u)
	}
	for _, r := range []int{t, u} {
		e.op("VCVTPH2PS %s, %s", k.h(r), k.r(r))
		e.op("VMULPS %s, %s, %s", k.r(k.scale()), k.r(r), k.r(r))
	}
	return 2
}

// emitPack writes the kernel that widens a block of weights, d rows of vecs
// registers, to consecutive rows at y. Registers are those of decode.
func (k *accumulate) emitPack(e *emitter) {
	cols := k.vecs * k.lanes
	e.function(fmt.Sprintf("pack%s%d%s", k.w.name, cols, k.name), "accArgs",
		fmt.Sprintf("widens rows of %d %s weights to y.", cols, k.w.name))
	e.op("MOVQ accArgs_w(AX), R8")
	e.op("MOVQ accArgs_ldw(AX), R9")
	e.op("MOVQ accArgs_y(AX), DI")
	e.op("MOVQ accArgs_d(AX), R13")
	if k.w == fp8 {
		k.zero(e, k.nan())
		e.op("VBROADCASTSS accArgs_scale(AX), %s", k.r(k.scale()))
	}
	loop := e.label("loop")
	e.at(loop)
	for v := 0; v < k.vecs; {
		got := k.decode(e, v)
		for i := range got {
			e.op("VMOVUPS %s, %d(DI)", k.r(k.t(i)), (v+i)*k.bytes())
		}
		v += got
	}
	e.op("ADDQ R9, R8")
	e.op("ADDQ $%d, DI", cols*4)
	e.op("DECQ R13")
	e.op("JNZ %s", loop)
	if k.w == fp8 {
		k.reportNaN(e)
	}
	e.ret()
}

// reportNaN sets nan, and R12, to the bytes where a NaN code was read, which
// the decoder does not produce.
func (k *accumulate) reportNaN(e *emitter) {
	seen := k.h(k.nan())
	e.op("VPCMPEQB accCodeMask%s<>(SB), %s, %s", k.name, seen, seen)
	e.op("VPMOVMSKB %s, R12", seen)
	e.op("MOVQ R12, accArgs_nan(AX)")
}

// refuseNaN returns without writing y when a NaN code was read; the caller then
// takes the path that widens first.
func (k *accumulate) refuseNaN(e *emitter) {
	clean := e.label("clean")
	k.reportNaN(e)
	e.op("TESTQ R12, R12")
	e.op("JZ %s", clean)
	e.ret()
	e.at(clean)
}
