package main

import "fmt"

// emitDot writes the kernel that multiplies one row of x by sixteen rows of weights. The products of a step are added
// in the lanes of a register for each row of weights; a tree of additions then makes one register of the sums of
// sixteen rows, which are exact, and these are scaled.
//
//	SI codes of x   DI its scales   CX its sums   blockArgs_steps steps left
//	Z16 sums   Z17 offsets of the rows   Z18 ... Z21 partial trees, and Z12 ... Z15 those of minimums
func (e *emitter) emitDot(f blockFormat) {
	e.function("blockDot"+f.name, "blockArgs", fmt.Sprintf("one row of x by sixteen rows of %s.", f.name))
	e.blockStart()
	e.blockConstants(f, true)
	if f == q4k {
		e.op("VMOVDQU64 blockMinPairs<>(SB), Z%d", bkMins)
	}
	e.op(`
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_sums(AX), CX
		VMOVDQU32 blockArgs_offsets(AX), Z17
		VPXORD Z16, Z16, Z16`)
	loop, more, add, store := e.label("loop"), e.label("more"), e.label("add"), e.label("store")
	e.at(loop)
	if f.small() {
		e.op("CMPQ blockArgs_steps(AX), $1")
		e.op("JNE %s", more)
		e.op("MOVQ blockArgs_last(AX), DX")
		e.at(more)
		e.dotPair(f)
	} else {
		e.dotSuper(f)
	}
	e.op("ADDQ $%d, BX", f.stepBytes())
	e.op("DECQ blockArgs_steps(AX)")
	e.op("JNZ %s", loop)
	e.op(`
		MOVQ blockArgs_y(AX), DI
		MOVQ blockArgs_mask(AX), R9
		KMOVW R9, K1
		CMPQ blockArgs_add(AX), $0`)
	e.op("JNE %s", add)
	e.op("JMP %s", store)
	e.at(add)
	e.op("VADDPS.Z (DI), Z16, K1, Z16")
	e.at(store)
	e.op("VMOVUPS Z16, K1, (DI)")
	e.ret()
}

// dotPair adds a pair of blocks.
func (e *emitter) dotPair(f blockFormat) {
	t := tree{emitter: e, first: 18, pair: true}
	for r := range 16 {
		e.blockRow(f, r)
		e.unpackPair(f, 0, true)
		e.op("VPXORD Z1, Z1, Z1")
		e.op("VPDPBUSD (SI), Z0, Z1")
		t.add(r, 1)
	}
	e.op("MOVQ blockArgs_rows(AX), R9")
	e.op("ADDQ BX, R9")
	for b := range 2 {
		sum := t.out(b)
		e.gatherScales(f, b == 1, 2, 0, 17)
		e.op("VPBROADCASTD %d(CX), Z4", 4*b)
		e.op("VPSLLD $%d, Z4, Z4", f.offset)
		e.op("VPSUBD Z4, Z%d, Z4", sum)
		e.op("VCVTDQ2PS Z4, Z4")
		e.op("VMULPS.BCST %d(DI), Z2, Z2", 4*b)
		e.op("VFMADD231PS Z2, Z4, Z16")
	}
	e.op("ADDQ $64, SI")
	e.op("ADDQ $8, DI")
	e.op("ADDQ $8, CX")
}

// dotSuper adds a block of 256.
func (e *emitter) dotSuper(f blockFormat) {
	sums, mins := tree{emitter: e, first: 18}, tree{emitter: e, first: 12}
	for r := range 16 {
		e.blockRow(f, r)
		e.scalesOf(f, 0)
		if f == q6k { // values are 32 too large
			e.op("VPMADDWD (CX), Y0, Y1")
			e.op("VPSLLD $5, Y1, Y1")
			e.op("VPXORD Y2, Y2, Y2")
			e.op("VPSUBD Y1, Y2, Y1")
		} else {
			e.op("VPXORD Z1, Z1, Z1")
		}
		e.quarters(f, 2, func(q, z int) {
			e.op("VPERMW Z0, Z%d, Z8", bkPerm+q)
			e.op("VPMADDUBSW %d(SI), Z%d, Z9", 64*q, z)
			e.op("VPDPWSSD Z8, Z9, Z1")
		})
		sums.add(r, 1)
		if f == q4k {
			e.op("VPERMW Y0, Y%d, Y0", bkMins)
			e.op("VPMADDWD (CX), Y0, Y0")
			mins.add(r, 0)
		}
	}
	e.op("MOVQ blockArgs_rows(AX), R9")
	e.op("ADDQ BX, R9")
	e.gatherScales(f, false, 2, 4, 17)
	e.op("VCVTDQ2PS Z%d, Z1", sums.out(0))
	if f == q4k {
		e.op("VCVTDQ2PS Z%d, Z0", mins.out(0))
		e.op("VMULPS Z0, Z4, Z0")
		e.op("VFMSUB213PS Z0, Z2, Z1")
	} else {
		e.op("VMULPS Z2, Z1, Z1")
	}
	e.op("VFMADD231PS.BCST (DI), Z1, Z16")
	e.op("ADDQ $256, SI")
	e.op("ADDQ $4, DI")
	e.op("ADDQ $32, CX")
}

// tree adds the lanes of sixteen registers, one after the other: a partial result of 1, 2, 4 and 8 of them waits in a
// register from first on. Where pair is set the lower and the upper half of the lanes are two results.
type tree struct {
	*emitter
	first int
	pair  bool
}

// add takes the lanes of register z, the r-th; z and Z10, Z11 are used.
func (t tree) add(r, z int) {
	level := 0
	for ; r>>level&1 == 1; level++ {
		t.merge(level, t.first+level, z)
	}
	if level < 4 {
		t.op("VMOVDQA64 Z%d, Z%d", z, t.first+level)
	} else if !t.pair {
		t.op("VMOVDQA64 Z%d, Z%d", z, t.first)
	}
}

// out is the register of a result.
func (t tree) out(i int) int { return t.first + i }

// merge adds the earlier partial result a and the later one z into z.
func (t tree) merge(level, a, z int) {
	first, second := "", ""
	switch level {
	case 0:
		first, second = "VPUNPCKLDQ", "VPUNPCKHDQ"
	case 1:
		first, second = "VPUNPCKLQDQ", "VPUNPCKHQDQ"
	case 2:
		first, second = "VSHUFI32X4 $0x44,", "VSHUFI32X4 $0xEE,"
		if t.pair {
			first, second = "VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,"
		}
	case 3:
		first, second = "VSHUFI32X4 $0x88,", "VSHUFI32X4 $0xDD,"
		if t.pair {
			t.op("%s Z%d, Z%d, Z%d", first, z, a, 10)
			t.op("%s Z%d, Z%d, Z%d", second, z, a, t.first+1)
			t.op("VMOVDQA64 Z10, Z%d", t.first)
			return
		}
	}
	t.op("%s Z%d, Z%d, Z10", first, z, a)
	t.op("%s Z%d, Z%d, Z11", second, z, a)
	t.op("VPADDD Z10, Z11, Z%d", z)
}
