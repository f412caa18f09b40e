package main

import (
	"fmt"
	"math"
)

// emitAttend writes sparse attention over latent rows on tiles, for 16 heads at
// a time. Rows are multiplied as bfloat16. Queries and
// probabilities, which are float32, are the sum of two bfloat16: the rounded
// number, and the rounding error.
//
//	tiles    copied, decoded or interleaved rows that are multiplied next
//	query    [18 steps, 2 parts] tiles: row p holds a pair of elements of 16 heads,
//	         of the 32 of its step the pth, or in the order of coded rows
//	scores   [keys, 16 heads] float32
//	weights  [keys/32, 2 parts] tiles: [16 heads, 32 keys]
//	out      [32 tiles] of [16 heads, 16 columns] float32: tiles 2c and 2c+1 hold
//	         columns 32c to 32c+31, four and four in turn, as pairs of rows do; of coded
//	         rows tile 4c+j holds columns 64c+16l+4j to 64c+16l+4j+3 in lane l
func emitAttend(e *emitter) {
	codeTablesData(e)
	inOrderData(e)
	words(e, "magnitude", 0x7FFF7FFF)
	words(e, "codeBits", 0x7F7F7F7F)
	words(e, "notExponent", 0x807FFFFF)
	words(e, "headroom", math.Float32bits(8)) // weights stay below exp(8), so sums do not overflow
	v := &vectors{e}
	v.constants()
	emitNarrowExact(e)
	emitAttendQuery(e, "attendQueryamx", [4]int{0, 8, 16, 24})
	emitAttendQuery(e, "attendQueryCodedamx", [4]int{0, 16, 32, 48})
	codedData(e)
	for _, format := range codedFormats {
		c := &coded{e, format}
		c.emitDecoders()
		c.emitScores()
		c.emitValues()
	}
	emitFetchRows(e)
	emitEntry(e)
	emitHolds(e)
	emitAttendScores(e, "attendScoresamx", rowChunks)
	emitAttendScores(e, "attendScoresShortamx", latentChunks)
	emitAttendScoresAt(e, "attendScoresAtamx", rowChunks)
	emitAttendScoresAt(e, "attendScoresShortAtamx", latentChunks)
	emitAttendSoftmax(e, v)
	emitAttendRescale(e)
	emitAttendValues(e, "attendValuesamx", 18, 2)
	emitAttendValues(e, "latentValuesamx", 16, 1) // rows of weights
	emitAttendResult(e)
	emitAttendResultCoded(e)
}

// words writes a vector of one repeated 32-bit word.
func words(e *emitter, name string, word uint32) {
	data := make([]byte, 64)
	for i := range data {
		data[i] = byte(word >> (8 * (i % 4)))
	}
	table(e, name, data)
}

// emitNarrowExact writes the kernel that truncates float32 to bfloat16 and reports
// whether that is exact: no bits are lost, and no result is subnormal, which tiles
// treat as zero.
//
//	AX arguments   SI numbers   DI bfloat16   CX registers left   K3 inexact lanes
func emitNarrowExact(e *emitter) {
	words(e, "lowerHalf", 0x0000FFFF)
	words(e, "exponent", 0x7F800000)
	words(e, "withoutSign", 0x7FFFFFFF)
	e.function("narrowExactamx", "vecArgs", "dst = a, to bfloat16; nan is set where that is not exact.")
	e.op(`
		MOVQ vecArgs_dst(AX), DI
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_steps(AX), CX
		VMOVDQU64 lowerHalf<>(SB), Z1
		VMOVDQU64 exponent<>(SB), Z2
		VMOVDQU64 withoutSign<>(SB), Z3
		KXORW K3, K3, K3`)
	e.loop("loop", "CX", func() {
		e.op(`
			VMOVDQU32 (SI), Z0
			VPTESTMD Z1, Z0, K1
			KORW K1, K3, K3
			VPTESTNMD Z2, Z0, K1
			VPTESTMD Z3, Z0, K1, K1
			KORW K1, K3, K3
			VPSRLD $16, Z0, Z0
			VPMOVDW Z0, (DI)
			ADDQ $64, SI
			ADDQ $32, DI`)
	})
	e.op(`
		KMOVW K3, R8
		MOVQ R8, vecArgs_nan(AX)`)
	e.ret()
}

// splitRow rounds the 32 float32 at two addresses to bfloat16 at dst, and the
// rounding errors to bfloat16 at rest, through registers 0 to 4.
func splitRow(e *emitter, low, high, dst, halves, rest string) {
	e.op(`
		VMOVUPS %s, Z0
		VMOVUPS %s, Z1`, low, high)
	splitPair(e, dst, halves, rest)
}

// splitPair is splitRow for numbers in registers 0 and 1.
func splitPair(e *emitter, dst, halves, rest string) {
	emit(e, narrowPair(0, 1, 2))
	e.op(`
		VMOVDQU64 Z2, %s
		VPMOVZXWD %s, Z3
		VPMOVZXWD %s, Z4
		VPSLLD $16, Z3, Z3
		VPSLLD $16, Z4, Z4
		VSUBPS Z3, Z0, Z0
		VSUBPS Z4, Z1, Z1`, dst, dst, halves)
	emit(e, narrowPair(0, 1, 2))
	e.op("VMOVDQU64 Z2, %s", rest)
}

// emitAttendQuery writes the kernel that splits queries and turns them into
// tiles: 16 heads by 32 elements at a time are split, then transposed as pairs.
// Of 64 elements, the first step takes eights that begin at the given ones, and the
// second those that are left.
//
//	AX arguments   SI elements   R8 stride of heads   DI tiles   CX chunks left
//	DX two tiles in between   R9 head
func emitAttendQuery(e *emitter, name string, eights [4]int) {
	e.function(name, "attendQueryArgs", "splits 16 heads of chunks x 64 elements into tiles of pairs.")
	e.op(`
		MOVQ attendQueryArgs_q(AX), SI
		MOVQ attendQueryArgs_ld(AX), R8
		MOVQ attendQueryArgs_tiles(AX), DI
		MOVQ attendQueryArgs_between(AX), DX
		MOVQ attendQueryArgs_chunks(AX), CX`)
	second := 32
	if eights[1] != 8 {
		second = 8
	}
	e.loop("loop", "CX", func() {
		for step := range 2 {
			e.op("MOVQ SI, R9")
			for h := range 16 {
				for i, from := range eights {
					if part := at16("R9", 4*(from+step*second)); i%2 == 0 {
						e.op("VMOVUPS %s, Y%d", part, i/2)
					} else {
						e.op("VINSERTF64X4 $1, %s, Z%d, Z%d", part, i/2, i/2)
					}
				}
				splitPair(e, at16("DX", 64*h), fmt.Sprintf("%d(DX)", 64*h+32), at16("DX", tileBytes+64*h))
				e.op("ADDQ R8, R9")
			}
			for part := range 2 {
				for h := range 16 {
					e.op("VMOVDQU64 %d(DX), Z%d", part*tileBytes+64*h, h)
				}
				for p, z := range transpose16(e) {
					e.op("VMOVDQU64 Z%d, %d(DI)", z, part*tileBytes+64*p)
				}
			}
			e.op("ADDQ $%d, DI", 2*tileBytes)
		}
		e.op("ADDQ $256, SI")
	})
	e.ret()
}

// emitAttendScores writes the kernel that multiplies rows with the queries of
// 16 heads, 64 at a time. Tiles 0 to 3 sum up the products of 16 rows each, with
// both parts of the query in turn.
//
//	AX arguments   SI rows   DX query   DI scores   R9, R10 distance of rows
//	CX groups of 64 rows left
func emitAttendScores(e *emitter, name string, steps int) {
	rowBytes := 64 * steps
	e.function(name, "attendScoreArgs",
		fmt.Sprintf("products of 64 x groups contiguous rows of %d elements and 16 heads.", 32*steps))
	scoresOpen(e)
	e.op(`
		MOVQ attendScoreArgs_query(AX), DX
		MOVQ $%d, R9`, rowBytes)
	loop := e.label("loop")
	e.at(loop)
	for t := range 4 {
		emit(e, tilezero(t))
	}
	for k := range steps {
		scoreStep(e, k, func(i int) memory {
			return memory{base: "SI", index: "R9", disp: 16*i*rowBytes + 64*k}
		}, func(int) {})
	}
	scoresStore(e)
	e.op(`
		ADDQ $%d, SI
		DECQ CX
		JNZ %s`, 64*rowBytes, loop)
	emit(e, tilerelease())
	e.ret()
}

// scoresOpen loads the registers that all kernels of scores use.
func scoresOpen(e *emitter) {
	e.op("MOVQ attendScoreArgs_shapes(AX), R9")
	emit(e, ldtilecfg(memory{base: "R9"}))
	e.op(`
		MOVQ attendScoreArgs_rows(AX), SI
		MOVQ attendScoreArgs_scores(AX), DI
		MOVQ attendScoreArgs_groups(AX), CX
		MOVQ $64, R10`)
}

// scoreStep adds the products of step k of the query at DX, for four tiles of rows, and interleaves other
// instructions with them.
func scoreStep(e *emitter, k int, rows func(i int) memory, between func(i int)) {
	emit(e, tileload(memory{base: "DX", index: "R10", disp: 2 * k * tileBytes}, 6))
	emit(e, tileload(memory{base: "DX", index: "R10", disp: (2*k + 1) * tileBytes}, 7))
	for i := 0; i < 4; i += 2 {
		emit(e, tileload(rows(i), 4))
		emit(e, tdpbf16ps(6, 4, i))
		between(i)
		emit(e, tileload(rows(i+1), 5))
		emit(e, tdpbf16ps(6, 5, i+1))
		emit(e, tdpbf16ps(7, 4, i))
		between(i + 1)
		emit(e, tdpbf16ps(7, 5, i+1))
	}
}

// scoresStore writes the scores of 64 rows and advances.
func scoresStore(e *emitter) {
	for t := range 4 {
		emit(e, tilestore(t, memory{base: "DI", index: "R10", disp: t * tileBytes}))
	}
	e.op("ADDQ $%d, DI", 4*tileBytes)
}

// emitAttendSoftmax writes the kernel that turns scores into weights. Lanes are
// heads. Padding rows in the last 32 repeat the score of an existing row, so
// they do not change the largest; their weights are zero.
//
//	AX arguments   SI scores   DI weights   DX [16, 32] float32
//	CX keys left   R9 keys   R10 whole groups of 32 left
func emitAttendSoftmax(e *emitter, v *vectors) {
	e.function("attendSoftmaxamx", "attendSoftmaxArgs", "scores of up to 32 x groups keys to weights.")
	e.op(`
		MOVQ attendSoftmaxArgs_scores(AX), SI
		MOVQ attendSoftmaxArgs_groups(AX), CX
		SHLQ $3, CX
		VBROADCASTSS attendSoftmaxArgs_scale(AX), Z15
		VMOVUPS attendSoftmaxArgs_top(AX), Z14`)
	for i := range 4 {
		e.op("VMOVAPS Z14, Z%d", 5+i)
	}
	e.loop("scale", "CX", func() {
		for i := range 4 {
			e.op("VMULPS %d(SI), Z15, Z%d", 64*i, i)
			e.op("VMOVUPS Z%d, %d(SI)", i, 64*i)
			e.op("VMAXPS Z%d, Z%d, Z%d", i, 5+i, 5+i)
		}
		e.op("ADDQ $256, SI")
	})
	e.op(`
		VMAXPS Z5, Z6, Z5
		VMAXPS Z7, Z8, Z7
		VMAXPS Z5, Z7, Z15`)

	e.note("Z15 is the largest score, Z14 the base of the weights: raised only where weights would get too large.")
	e.op(`
		VMAXPS attendSoftmaxArgs_most(AX), Z15, Z0
		VMOVUPS Z0, attendSoftmaxArgs_most(AX)
		VADDPS headroom<>(SB), Z14, Z0
		VCMPPS $2, Z0, Z15, K1`) // scores at or below the largest one; false for NaN
	e.op(`
		VMOVAPS Z14, K1, Z15
		KNOTW K1, K1
		VMOVUPS Z15, attendSoftmaxArgs_top(AX)
		KMOVW K1, R8
		MOVQ R8, attendSoftmaxArgs_grew(AX)
		VSUBPS Z15, Z14, Z0`)
	v.exp()
	e.op(`
		VMOVAPS Z0, Z5
		VMOVUPS Z5, attendSoftmaxArgs_keep(AX)
		VMULPS attendSoftmaxArgs_sum(AX), Z5, Z14`)

	e.op(`
		MOVQ attendSoftmaxArgs_scores(AX), SI
		MOVQ attendSoftmaxArgs_keys(AX), CX`)
	weigh, fill, filled := e.label("weigh"), e.label("fill"), e.label("filled")
	e.at(weigh)
	e.op(`
		VMOVUPS (SI), Z0
		VSUBPS Z15, Z0, Z0`)
	v.exp()
	e.op(`
		VMOVUPS Z0, (SI)
		VADDPS Z0, Z14, Z14
		ADDQ $64, SI
		DECQ CX
		JNZ %s
		VMOVUPS Z14, attendSoftmaxArgs_sum(AX)
		MOVQ attendSoftmaxArgs_groups(AX), CX
		SHLQ $5, CX
		SUBQ attendSoftmaxArgs_keys(AX), CX
		JZ %s`, weigh, filled)
	v.zero(0)
	e.at(fill)
	e.op(`
		VMOVUPS Z0, (SI)
		ADDQ $64, SI
		DECQ CX
		JNZ %s`, fill)
	e.at(filled)

	e.op(`
		MOVQ attendSoftmaxArgs_scores(AX), SI
		MOVQ attendSoftmaxArgs_weights(AX), DI
		MOVQ attendSoftmaxArgs_between(AX), DX
		MOVQ attendSoftmaxArgs_groups(AX), CX`)
	e.loop("group", "CX", func() {
		for half := range 2 {
			for i := range 16 {
				e.op("VMOVUPS %d(SI), Z%d", half*tileBytes+64*i, i)
			}
			for h, z := range transpose16(e) {
				e.op("VMOVUPS Z%d, %d(DX)", z, 128*h+64*half)
			}
		}
		for h := range 16 {
			splitRow(e, at16("DX", 128*h), at16("DX", 128*h+64), at16("DI", 64*h), fmt.Sprintf("%d(DI)", 64*h+32),
				at16("DI", tileBytes+64*h))
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, DI`, 2*tileBytes, 2*tileBytes)
	})
	e.ret()
}

// emitAttendRescale writes the kernel that multiplies the sums of every head by a
// factor.
//
//	AX arguments   DI tiles   CX tiles left   Z16 to Z31 factors of the heads
func emitAttendRescale(e *emitter) {
	e.function("attendRescaleamx", "attendValueArgs", "out = keep*out.")
	e.op(`
		MOVQ attendValueArgs_out(AX), DI
		MOVQ attendValueArgs_keep(AX), SI`)
	for h := range 16 {
		e.op("VBROADCASTSS %d(SI), Z%d", 4*h, 16+h)
	}
	e.op("MOVQ $32, CX")
	e.loop("loop", "CX", func() {
		for h := range 16 {
			e.op("VMULPS %d(DI), Z%d, Z%d", 64*h, 16+h, h)
			e.op("VMOVUPS Z%d, %d(DI)", h, 64*h)
		}
		e.op("ADDQ $%d, DI", tileBytes)
	})
	e.ret()
}

// emitAttendResult writes the kernel that restores the order of the columns of one
// head.
//
//	AX arguments   SI row of the first tile   DI result   CX pairs of tiles left
func emitAttendResult(e *emitter) {
	for i, order := range [][]int{{0, 1, 8, 9, 2, 3, 10, 11}, {4, 5, 12, 13, 6, 7, 14, 15}} {
		data := make([]byte, 64)
		for j, q := range order {
			data[8*j] = byte(q)
		}
		table(e, fmt.Sprintf("laneOrder%d", i), data)
	}
	e.function("attendResultamx", "attendQueryArgs", "one row of 32 tiles at q, times by, to 512 float32 at tiles.")
	e.op(`
		VBROADCASTSS attendQueryArgs_by(AX), Z5
		MOVQ attendQueryArgs_q(AX), SI
		MOVQ attendQueryArgs_tiles(AX), DI
		MOVQ $16, CX
		VMOVDQU64 laneOrder0<>(SB), Z2
		VMOVDQU64 laneOrder1<>(SB), Z3`)
	e.loop("loop", "CX", func() {
		e.op(`
			VMOVDQU64 (SI), Z0
			VMOVDQU64 %d(SI), Z1`, tileBytes)
		for i := range 2 {
			e.op(`
				VMOVDQA64 Z%d, Z4
				VPERMI2Q Z1, Z0, Z4
				VMULPS Z5, Z4, Z4
				VMOVDQU64 Z4, %d(DI)`, 2+i, 64*i)
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $128, DI`, 2*tileBytes)
	})
	e.ret()
}

// emitAttendResultCoded is emitAttendResult for coded rows.
//
//	AX arguments   SI row of the first tile   DI result   CX chunks of four tiles left
func emitAttendResultCoded(e *emitter) {
	e.function("attendResultCodedamx", "attendQueryArgs",
		"one row of 32 tiles at q, times by, to 512 float32 at tiles.")
	e.op(`
		VBROADCASTSS attendQueryArgs_by(AX), Z8
		MOVQ attendQueryArgs_q(AX), SI
		MOVQ attendQueryArgs_tiles(AX), DI
		MOVQ $8, CX`)
	e.loop("loop", "CX", func() {
		for j := range 4 {
			e.op("VMULPS %d(SI), Z8, Z%d", j*tileBytes, j)
		}
		e.note("Lane l of four tiles becomes register l.")
		for i, lanes := range []int{0x44, 0xEE} {
			e.op(`
				VSHUFF32X4 $0x%X, Z1, Z0, Z4
				VSHUFF32X4 $0x%X, Z3, Z2, Z5
				VSHUFF32X4 $0x88, Z5, Z4, Z6
				VSHUFF32X4 $0xDD, Z5, Z4, Z7
				VMOVUPS Z6, %d(DI)
				VMOVUPS Z7, %d(DI)`, lanes, lanes, 128*i, 128*i+64)
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $256, DI`, 4*tileBytes)
	})
	e.ret()
}
