package main

import (
	"fmt"
	"slices"
)

// emitDense writes dense attention of one head on tiles. All operands are float32 that were split into two bfloat16:
// the rounded number, and the rounding error.
//
//	left     [groups of 16 rows, steps of 32, 2 parts] tiles of 16 lines of 32 elements
//	right    [groups of 16 columns, steps of 32, 2 parts] tiles of 16 lines of 16 pairs
//	scores   [16 rows, 256 keys] float32
func emitDense(e *emitter) {
	v := &vectors{e}
	v.constants()
	e.constant("roundHalf", 0x8000)
	e.constant("upperHalf", 0xFFFF0000)
	data := make([]byte, 64)
	for i := range 32 {
		data[2*i] = byte(i/2 + i%2*16)
	}
	table(e, "pairWords", data)
	for _, c := range belowConstants {
		e.constant(c.name, c.word)
	}
	for _, groups := range []int{1, 2} {
		emitParts(e, groups)
	}
	packGroup(e, ascending, "denseQueries", false, func(int) { splitPlain(e, 0, 1) })
	packGroup(e, ascending, "denseKeyTiles", true, func(int) { splitPlain(e, 0, 1) })
	emitPairValues(e)
	emitDenseSoftmax(e, v)
	emitScaleRows(e)
}

// emitParts writes the product of groups of 16 rows by pairs of 16 columns. In every step of 32 the rounded numbers are
// multiplied first, then the errors of rows by the rounded columns, then rounded rows by the errors of columns. The
// products of errors with errors are omitted: they are smaller than the loss by splitting.
//
//	AX arguments   BX, R13 rows   DX, R14 columns   SI, R12 first column of a pair, distance of columns
//	DI, R15 sums   CX distance of their lines   R8 steps left   R9 pairs left   R10 distance of lines
func emitParts(e *emitter, groups int) {
	e.function(fmt.Sprintf("parts%d", groups), "partsArgs",
		fmt.Sprintf("%d groups of 16 rows by pairs of 16 columns, all of two parts.", groups))
	emit(e, ldtilecfg(memory{base: "AX"}))
	e.op(`
		MOVQ partsArgs_right(AX), SI
		MOVQ partsArgs_nextRight(AX), R12
		MOVQ partsArgs_sums(AX), DI
		MOVQ partsArgs_ldSums(AX), CX
		MOVQ partsArgs_columns(AX), R9
		MOVQ $64, R10`)
	left, right, sums := []string{"BX", "R13"}[:groups], []string{"DX", "R14"}, []string{"DI", "R15"}[:groups]
	each := func(do func(group, column int)) {
		for column := range 2 {
			for group := range groups {
				do(group, column)
			}
		}
	}
	sum := func(group, column int) memory { return memory{base: sums[group], index: "CX", disp: 64 * column} }

	pair, step, fresh, begun := e.label("pair"), e.label("step"), e.label("fresh"), e.label("begun")
	e.at(pair)
	e.op("MOVQ partsArgs_left(AX), BX")
	if groups == 2 {
		e.op(`
			MOVQ partsArgs_nextLeft(AX), R13
			ADDQ BX, R13
			MOVQ CX, R15
			SHLQ $4, R15
			ADDQ DI, R15`)
	}
	e.op(`
		MOVQ SI, DX
		LEAQ (SI)(R12*1), R14
		MOVQ partsArgs_steps(AX), R8
		CMPQ partsArgs_fresh(AX), $0
		JNE %s`, fresh)
	each(func(group, column int) { emit(e, tileload(sum(group, column), 2*group+column)) })
	e.op("JMP %s", begun)
	e.at(fresh)
	each(func(group, column int) { emit(e, tilezero(2*group+column)) })
	e.at(begun)

	e.at(step)
	rows := func(group, part int) {
		emit(e, tileload(memory{base: left[group], index: "R10", disp: part * tileBytes}, tileW+group))
	}
	columns := func(column, part int) {
		emit(e, tileload(memory{base: right[column], index: "R10", disp: part * tileBytes}, tileX+column))
	}
	times := func(group, column int) { emit(e, tdpbf16ps(tileX+column, tileW+group, 2*group+column)) }
	rounded := func(part int) { // multiplies the rounded numbers of rows by one of the two parts of the columns
		columns(0, part)
		for group := range groups {
			rows(group, 0)
			times(group, 0)
		}
		columns(1, part)
		for group := range groups {
			times(group, 1)
		}
	}
	rounded(0)
	for group := range groups {
		rows(group, 1)
		times(group, 0)
		times(group, 1)
	}
	rounded(1)
	for _, r := range slices.Concat(left, right) {
		e.op("ADDQ $%d, %s", 2*tileBytes, r)
	}
	e.op(`
		DECQ R8
		JNZ %s`, step)

	each(func(group, column int) { emit(e, tilestore(2*group+column, sum(group, column))) })
	e.op(`
		LEAQ (SI)(R12*2), SI
		ADDQ $128, DI
		DECQ R9
		JNZ %s`, pair)
	emit(e, tilerelease())
	e.ret()
}

// emitPairValues writes the kernel that splits 32 rows of float32 into right operands, in which pairs of rows are
// interleaved.
//
//	AX arguments   SI rows   R11, R12 a pair   DX columns, in bytes   R10, DI a tile, its line
//	R9 pairs left   CX tiles left   K3 numbers that are not finite
func emitPairValues(e *emitter) {
	e.function("pairValues", "pairArgs",
		"32 rows of columns x 16 float32 to a step of two tiles for each 16; nan is set where one is not finite.")
	e.op(`
		KXORW K3, K3, K3
		VMOVDQU64 pairWords<>(SB), Z15
		MOVQ pairArgs_tiles(AX), R10
		MOVQ pairArgs_columns(AX), CX
		XORL DX, DX`)
	e.loop("columns", "CX", func() {
		e.op(`
			LEAQ pairArgs_rows(AX), SI
			MOVQ R10, DI
			MOVQ $16, R9`)
		e.loop("pair", "R9", func() {
			e.op(`
				MOVQ (SI), R11
				MOVQ 8(SI), R12
				VMOVUPS (R11)(DX*1), Z0
				VMOVUPS (R12)(DX*1), Z1`)
			emit(e, narrowPair(0, 1, 2))
			e.op(`
				VPERMW Z2, Z15, Z2
				VMOVDQU64 Z2, (DI)
				VPSLLD $16, Z2, Z3
				VPANDD upperHalf<>(SB), Z2, Z4
				VFPCLASSPSZ $0x99, Z3, K1
				VFPCLASSPSZ $0x99, Z4, K2
				KORW K1, K3, K3
				KORW K2, K3, K3
				VSUBPS Z3, Z0, Z0
				VSUBPS Z4, Z1, Z1`)
			emit(e, narrowPair(0, 1, 2))
			e.op(`
				VPERMW Z2, Z15, Z2
				VMOVDQU64 Z2, %d(DI)
				ADDQ $16, SI
				ADDQ $64, DI`, tileBytes)
		})
		e.op(`
			ADDQ $64, DX
			ADDQ pairArgs_nextTile(AX), R10`)
	})
	e.op(`
		KMOVW K3, R8
		MOVQ R8, pairArgs_nan(AX)`)
	e.ret()
}

// emitDenseSoftmax writes the kernel that turns the scores of 16 rows into weights, which are left operands. Rows have
// different numbers of keys; weights of keys that a row does not see are zero.
//
//	AX arguments   SI, R11 scores of a row   R8 rows left   R9, R10 counts and other numbers of rows
//	BX steps of 32 keys left   CX keys left   DI, R12 weights of a row   R13 steps of all rows left
//	Z13 scale   Z15 what weights are relative to   Z14 their sum   K1, K3 keys that a row sees
func emitDenseSoftmax(e *emitter, v *vectors) {
	e.function("denseSoftmax", "denseSoftmaxArgs", "scores of 16 rows to weights.")
	e.op("VBROADCASTSS denseSoftmaxArgs_scale(AX), Z13")
	open := func() {
		e.op(`
			MOVQ denseSoftmaxArgs_scores(AX), R11
			LEAQ denseSoftmaxArgs_seen(AX), R9
			LEAQ denseSoftmaxArgs_most(AX), R10
			MOVQ $16, R8`)
	}
	next := func() {
		e.op(`
			ADDQ $8, R9
			ADDQ $4, R10
			ADDQ $%d, R11`, 4*denseKeys)
	}
	open()
	e.loop("largest", "R8", func() {
		whole, some, none := e.label("whole"), e.label("some"), e.label("none")
		e.op(`
			MOVQ R11, SI
			MOVQ (R9), CX
			MOVQ CX, BX
			VBROADCASTSS %s, Z5
			SHRQ $4, BX
			JZ %s`, v.konst("minusInf"), some)
		e.at(whole)
		e.op(`
			VMULPS (SI), Z13, Z0
			VMAXPS Z0, Z5, Z5
			ADDQ $64, SI
			DECQ BX
			JNZ %s`, whole)
		e.at(some)
		e.op(`
			ANDQ $15, CX
			JZ %s`, none)
		lowMask(e, "K1")
		e.op(`
			VMULPS (SI), Z13, Z0
			VMAXPS Z0, Z5, K1, Z5`)
		e.at(none)
		v.across("VMAXPS", 5)
		e.op("VMOVSS X5, (R10)")
		next()
	})

	e.note("For all rows at once: the new base, and the factor of the sums so far.")
	e.op(`
		VMOVUPS denseSoftmaxArgs_top(AX), Z14
		VMAXPS denseSoftmaxArgs_most(AX), Z14, Z15
		VMOVUPS Z15, denseSoftmaxArgs_top(AX)
		VCMPPS $4, Z14, Z15, K1
		KMOVW K1, R8
		MOVQ R8, denseSoftmaxArgs_grew(AX)
		VSUBPS Z15, Z14, Z0
		VBROADCASTSS %s, Z1
		VCMPPS $0, Z1, Z15, K1
		VXORPS Z0, Z0, K1, Z0
		VXORPS Z15, Z15, K1, Z15`, v.konst("minusInf")) // zero is the base of the weights of a row without keys
	e.op("VMOVUPS Z15, denseSoftmaxArgs_most(AX)")
	v.exp()
	e.op(`
		VMOVUPS Z0, denseSoftmaxArgs_keep(AX)
		VMULPS denseSoftmaxArgs_sum(AX), Z0, Z0
		VMOVUPS Z0, denseSoftmaxArgs_sum(AX)`)

	open()
	for i, c := range belowConstants {
		e.op("VBROADCASTSS %s<>(SB), Z%d", c.name, belowFirst+i)
	}
	e.op("MOVQ denseSoftmaxArgs_weights(AX), R12")
	e.loop("weigh", "R8", func() {
		whole, some, rest, zeros, done := e.label("whole"), e.label("some"), e.label("rest"), e.label("zeros"),
			e.label("done")
		e.op(`
			MOVQ R11, SI
			MOVQ R12, DI
			MOVQ denseSoftmaxArgs_steps(AX), R13
			MOVQ (R9), CX
			VBROADCASTSS (R10), Z15`)
		e.zero(14)
		e.op(`
			MOVQ CX, BX
			SHRQ $5, BX
			SUBQ BX, R13
			TESTQ BX, BX
			JZ %s`, some)
		e.at(whole)
		for i := range 2 {
			e.op(`
				VMULPS %d(SI), Z13, Z0
				VSUBPS Z15, Z0, Z0`, 64*i)
			expBelow(e, 6+i)
		}
		splitWeights(e)
		e.op(`
			ADDQ $128, SI
			DECQ BX
			JNZ %s`, whole)
		e.at(some)
		e.op(`
			ANDQ $31, CX
			JZ %s`, rest)
		lowMask(e, "K1")
		e.op("KSHIFTRD $16, K1, K3")
		for i, mask := range []string{"K1", "K3"} {
			e.op(`
				VMULPS.Z %d(SI), Z13, %s, Z0
				VSUBPS Z15, Z0, Z0`, 64*i, mask)
			expBelow(e, 1)
			e.op("VMOVAPS.Z Z1, %s, Z%d", mask, 6+i)
		}
		splitWeights(e)
		e.op("DECQ R13")
		e.at(rest)
		e.op(`
			TESTQ R13, R13
			JZ %s`, done)
		e.zero(0)
		e.at(zeros)
		e.op(`
			VMOVDQU64 Z0, (DI)
			VMOVDQU64 Z0, %d(DI)
			ADDQ $%d, DI
			DECQ R13
			JNZ %s`, tileBytes, 2*tileBytes, zeros)
		e.at(done)
		v.across("VADDPS", 14)
		e.op(`
			VADDSS (denseSoftmaxArgs_sum-denseSoftmaxArgs_most)(R10), X14, X14
			VMOVSS X14, (denseSoftmaxArgs_sum-denseSoftmaxArgs_most)(R10)
			ADDQ $64, R12`)
		next()
	})
	e.ret()
}

// denseKeys is the number of keys in a row of scores.
const denseKeys = 256

// lowMask sets the lowest CX bits of a mask. CX is at most 31. It overwrites BX.
func lowMask(e *emitter, mask string) {
	e.op(`
		MOVL $1, BX
		SHLL CX, BX
		DECL BX
		KMOVD BX, %s`, mask)
}

// The first of the registers that hold the constants of expBelow, and the constants.
const belowFirst = 16

var belowConstants = []struct {
	name string
	word uint32
}{
	{"belowLeast", 0xC2AC0000}, // lower bound of the argument: for -86 and above, exp is a normal number
	{"belowMagic", 0x4B400000}, // 1.5 * 2^23: adding it rounds to an integer
	{"belowLog2e", 0x3FB8AA3B},
	{"belowLn2", 0x3F317218},
	{"below6", 0x3AB60B61}, // 1/6!, 1/5!, ...
	{"below5", 0x3C088889},
	{"below4", 0x3D2AAAAB},
	{"below3", 0x3E2AAAAB},
	{"below2", 0x3F000000},
	{"below1", 0x3F800000},
}

// expBelow writes the exponential of register 0, which is at most 0, to a register, and overwrites register 2. Numbers
// below -86 are replaced by -86. The relative error is below 2^-20, less than the rounding error of splitting the
// result.
func expBelow(e *emitter, to int) {
	const least, magic, log2e, ln2, poly = belowFirst, belowFirst + 1, belowFirst + 2, belowFirst + 3, belowFirst + 4
	e.op("VMAXPS Z0, Z%d, Z0", least) // NaN is preserved
	e.op(`
		VMOVAPS Z%d, Z2
		VFMADD231PS Z%d, Z0, Z2
		VSUBPS Z%d, Z2, Z2
		VFNMADD231PS Z%d, Z2, Z0`, magic, log2e, magic, ln2)
	e.op("VMOVAPS Z%d, Z%d", poly, to)
	for i := range 6 {
		e.op("VFMADD213PS Z%d, Z0, Z%d", poly+1+min(i, 4), to) // the last two coefficients are 1
	}
	e.op("VSCALEFPS Z2, Z%d, Z%d", to, to)
}

// splitWeights adds the weights in registers 6 and 7 to the sum in register 14. It writes their two parts to lines of
// two tiles at DI and advances DI.
func splitWeights(e *emitter) {
	for i := range 2 {
		e.op(`
			VADDPS Z%d, Z14, Z14
			VPADDD roundHalf<>(SB), Z%d, Z%d`, 6+i, 6+i, 8+i)
		e.op("VPANDD upperHalf<>(SB), Z%d, Z%d", 8+i, 8+i)
		e.op("VSUBPS Z%d, Z%d, Z%d", 8+i, 6+i, 6+i)
	}
	emit(e, narrowPair(8, 9, 10))
	emit(e, narrowPair(6, 7, 11))
	e.op(`
		VMOVDQU64 Z10, (DI)
		VMOVDQU64 Z11, %d(DI)
		ADDQ $%d, DI`, tileBytes, 2*tileBytes)
}

// emitScaleRows writes the kernel that multiplies rows by one factor each.
//
//	AX arguments   SI, DI rows   R8 factors   R9 rows left   CX registers left   R11, R12 cursors
func emitScaleRows(e *emitter) {
	e.function("scaleRows", "scaleRowsArgs", "rows of columns x 16 float32, times a factor of each.")
	e.op(`
		MOVQ scaleRowsArgs_from(AX), SI
		MOVQ scaleRowsArgs_to(AX), DI
		MOVQ scaleRowsArgs_by(AX), R8
		MOVQ scaleRowsArgs_rows(AX), R9`)
	e.loop("row", "R9", func() {
		e.op(`
			VBROADCASTSS (R8), Z1
			MOVQ SI, R11
			MOVQ DI, R12
			MOVQ scaleRowsArgs_columns(AX), CX`)
		e.loop("columns", "CX", func() {
			e.op(`
				VMULPS (R11), Z1, Z0
				VMOVUPS Z0, (R12)
				ADDQ $64, R11
				ADDQ $64, R12`)
		})
		e.op(`
			ADDQ $4, R8
			ADDQ scaleRowsArgs_ldFrom(AX), SI
			ADDQ scaleRowsArgs_ldTo(AX), DI`)
	})
	e.ret()
}
