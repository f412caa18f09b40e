package main

import (
	"fmt"
	"slices"
)

// blockDot is a kernel that multiplies one row of x, or four, by sixteen rows of weights. The products of a step are
// added in the lanes of a register for each row of weights; a tree of additions then makes one register of the sums of
// sixteen rows, which are exact, and these are scaled.
//
//	SI codes of x   DI its scales   CX its sums   R14, R15 one, three strides between rows of x
//	R12 memory of the trees, for four rows   blockArgs_steps steps left
//	Z0 ... Z11 temporaries   Z12 ... Z15 lanes   Z16 ... Z19 results
//	one row: Z1 lanes, Z17 offsets, trees in Z12 ... Z15 and Z18 ... Z21; four rows: Z20 offsets
type blockDot struct {
	*emitter
	f    blockFormat
	rows int // rows of x
}

func (k *blockDot) write() {
	name := "blockDot" + k.f.name
	if k.rows > 1 {
		name = fmt.Sprintf("blockDot%d%s", k.rows, k.f.name)
	}
	k.function(name, "blockArgs", fmt.Sprintf("%d rows of x by sixteen rows of %s.", k.rows, k.f.name))
	blockStart(k.emitter)
	blockConstants(k.emitter, k.f, true)
	k.op(`
		MOVQ blockArgs_x(AX), SI
		MOVQ blockArgs_scales(AX), DI
		MOVQ blockArgs_sums(AX), CX
		VMOVDQU32 blockArgs_offsets(AX), Z%d
		MOVQ blockArgs_trees(AX), R12`, k.offsets())
	if k.rows > 1 {
		k.op(`
			MOVQ blockArgs_strideX(AX), R14
			LEAQ (R14)(R14*2), R15`)
	}
	k.results()
	loop, more := k.label("loop"), k.label("more")
	k.at(loop)
	if k.f.small() {
		k.op(`
			CMPQ blockArgs_steps(AX), $1
			JNE %s
			MOVQ blockArgs_last(AX), DX`, more)
		k.at(more)
		k.pair()
	} else {
		k.super()
	}
	k.op(`
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, k.f.stepBytes(), loop)
	k.store()
}

// results sets the initial sums: zero, or the results of earlier blocks in y if a row is multiplied in several calls.
func (k *blockDot) results() {
	if k.f.plain() {
		k.op("MOVQ blockArgs_y(AX), R9")
	}
	for i := range k.rows {
		if !k.f.plain() {
			k.zero(16 + i)
			continue
		}
		k.op(`
			VMOVUPS (R9), Z%d
			ADDQ blockArgs_ldy(AX), R9`, 16+i)
	}
}

// store writes the results of the rows that exist.
func (k *blockDot) store() {
	done := k.label("done")
	k.op(`
		MOVQ blockArgs_y(AX), DI
		MOVQ blockArgs_mask(AX), R9
		KMOVW R9, K1`)
	for i := range k.rows {
		plain := k.label("plain")
		if i > 0 {
			k.op(`
				DECQ blockArgs_count(AX)
				JZ %s
				ADDQ blockArgs_ldy(AX), DI`, done)
		}
		k.op(`
			CMPQ blockArgs_add(AX), $0
			JE %s
			VADDPS.Z (DI), Z%d, K1, Z%d`, plain, 16+i, 16+i)
		k.at(plain)
		k.op("VMOVUPS Z%d, K1, (DI)", 16+i)
	}
	k.at(done)
	k.ret()
}

// of returns the address of row i of x.
func (k *blockDot) of(base string, disp, i int) string {
	return spaced(base, "R14", "R15", "", disp, i)
}

func (k *blockDot) offsets() int {
	if k.rows > 1 {
		return 20
	}
	return 17
}

// lanes returns the register in which products with row i of x are added.
func (k *blockDot) lanes(i int) int {
	if k.rows > 1 {
		return 12 + i
	}
	return 1
}

// trees returns the trees that add up sums.
func (k *blockDot) trees() []tree {
	if k.rows == 1 {
		return []tree{{emitter: k.emitter, first: 18, pair: k.f.small()}}
	}
	var list []tree
	for i := range k.rows {
		list = append(list, tree{emitter: k.emitter, memory: true, first: 4 * 64 * i, pair: k.f.small()})
	}
	return list
}

// order returns the weight row that is processed in step r: trees in memory need the last row first.
func (k *blockDot) order(r int) int {
	if k.rows > 1 {
		return 15 - r
	}
	return r
}

// pairScales is the offset from R12 of memory for the scales of a pair of blocks, of sixteen rows each.
const pairScales = 4096

// pair multiplies a pair of blocks of 32 values.
func (k *blockDot) pair() {
	trees, nibbles := k.trees(), slices.Contains(nibbleFormats, k.f)
	if nibbles && !k.f.m() {
		k.zero(6)
	}
	for r := range 16 {
		blockRow(k.emitter, k.f, k.order(r))
		// The scales are copied one by one, because a gather takes longer.
		k.op(`
			MOVL (R8), R9
			MOVL (R8)(DX*1), R10
			MOVL R9, %d(R12)
			MOVL R10, %d(R12)`, pairScales+4*k.order(r), pairScales+64+4*k.order(r))
		unpackPair(k.emitter, k.f, 0, true)
		for i, t := range trees {
			z := k.lanes(i)
			k.zero(z)
			k.op("VPDPBUSD %s, Z0, Z%d", k.of("SI", 0, i), z)
			t.add(r, z)
		}
	}
	for b := range 2 {
		k.op("VMOVDQU64 %d(R12), Z2", pairScales+64*b)
		widenScales(k.emitter, k.f, 2, 6)
		for i, t := range trees {
			k.op("VPBROADCASTD %s, Z4", k.of("CX", 4*b, i))
			if nibbles {
				k.op("VCVTDQ2PS Z4, Z7")
			}
			k.op("%s, Z5", t.load(b))
			if k.f.offset > 0 {
				k.op(`
					VPSLLD $%d, Z4, Z4
					VPSUBD Z4, Z5, Z5`, k.f.offset)
			}
			k.op(`
				VCVTDQ2PS Z5, Z4
				VMULPS.BCST %s, Z2, Z5
				VFMADD231PS Z5, Z4, Z%d`, k.of("DI", 4*b, i), 16+i)
			if nibbles { // m, or zero if the format has no m
				k.op(`
					VMULPS.BCST %s, Z6, Z5
					VFMADD231PS Z5, Z7, Z%d`, k.of("DI", 4*b, i), 16+i)
			}
		}
	}
	k.op(`
		ADDQ $64, SI
		ADDQ $8, DI
		ADDQ $8, CX`)
}

// super multiplies a block of 256 values.
func (k *blockDot) super() {
	sums := k.trees()
	for r := range 16 {
		blockRow(k.emitter, k.f, k.order(r))
		scalesOf(k.emitter, k.f, 0)
		for i := range k.rows {
			z := k.lanes(i)
			k.zero(z)
			if k.f.offset > 0 { // the offset that was added to the values
				k.op(`
					VPMADDWD %s, Y0, Y2
					VPSLLD $%d, Y2, Y2
					VPSUBD Y2, Y%d, Y%d`, k.of("CX", 0, i), k.f.offset, z, z)
			}
		}
		quarters(k.emitter, k.f, 2, func(q, z int) {
			k.op("VPERMW Z0, Z%d, Z8", bkPerm+q)
			for i := range k.rows {
				k.op(`
					VPMADDUBSW %s, Z%d, Z9
					VPDPWSSD Z8, Z9, Z%d`, k.of("SI", 64*q, i), z, k.lanes(i))
			}
		})
		for i, t := range sums {
			t.add(r, k.lanes(i))
		}
	}
	k.op(`
		MOVQ blockArgs_rows(AX), R9
		ADDQ BX, R9`)
	gatherScales(k.emitter, k.f, false, 2, 4, k.offsets())
	for i, t := range sums {
		k.op(`
			%s, Z1
			VCVTDQ2PS Z1, Z1`, t.load(0))
		k.op("VMULPS Z2, Z1, Z1")
		k.op("VFMADD231PS.BCST %s, Z1, Z%d", k.of("DI", 0, i), 16+i)
	}
	k.op(`
		ADDQ $256, SI
		ADDQ $4, DI
		ADDQ $32, CX`)
}

// tree adds up the lanes of sixteen registers, one after the other. Partial results of 1, 2, 4 and 8 registers are kept
// in registers, starting at first, or in memory at byte first of R12. If pair is set, the lower and the upper half of
// the lanes are two results. The later of two partial results is on the left in memory, and on the right in registers.
type tree struct {
	*emitter
	first  int
	pair   bool
	memory bool
}

// slot returns the operand of partial result i.
func (t tree) slot(i int) string {
	if t.memory {
		return fmt.Sprintf("%d(R12)", t.first+64*i)
	}
	return fmt.Sprintf("Z%d", t.first+i)
}

// keep moves register z to a slot of the tree; load returns the beginning of an instruction that moves a slot to a
// register.
func (t tree) keep(z, slot int)  { t.op("VMOVDQA64 Z%d, %s", z, t.slot(slot)) }
func (t tree) load(i int) string { return "VMOVDQA64 " + t.slot(i) }

// add adds the lanes of register z, the r-th register, to the tree. It overwrites z, Z10 and Z11.
func (t tree) add(r, z int) {
	level := 0
	for ; r>>level&1 == 1; level++ {
		t.merge(level, z)
	}
	switch {
	case level < 4:
		t.keep(z, level)
	case !t.pair:
		t.keep(z, 0)
	}
}

// out returns the register of result i.
func (t tree) out(i int) int { return t.first + i }

// merge adds the stored partial result of a level to register z.
func (t tree) merge(level, z int) {
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
	}
	left, right := t.slot(level), fmt.Sprintf("Z%d", z)
	if t.memory {
		left, right = right, left
	}
	t.op("%s %s, %s, Z10", first, right, left)
	t.op("%s %s, %s, Z11", second, right, left)
	if level == 3 && t.pair {
		t.keep(10, 0)
		t.keep(11, 1)
		return
	}
	t.op("VPADDD Z10, Z11, Z%d", z)
}
