package main

import "fmt"

// emitIndexColumns writes the kernels of the indexer's scores of 64 keys, a lane for each key.
func emitIndexColumns(e *emitter) {
	e.constant("codeMask"+e.name, 0x7F7F7F7F)
	e.constant("halfMask"+e.name, 0xBFFFBFFF)
	indexLines(e)
	indexFP4Lines(e)
	indexHeads(e)
}

// indexLines writes the kernel that turns 64 keys of 128 e4m3 into 128 lines of 64 float32, 2^-8 of their values.
// Sixteen keys by 64 codes are 16 registers; interleaving register i with register i+8, four times over, transposes the
// 16 x 16 bytes of each 128-bit lane. Halves pass through memory, which spares the shuffle port.
//
//	AX arguments   SI keys   DI lines   R8 halves   CX groups of 16 keys left   DX halves of the keys left
//	before interleaving 31, 30 mask and largest of the codes   afterwards 31 mask of the halves
func indexLines(e *emitter) {
	const keys, keyBytes, lineBytes = 64, 128, 4 * 64
	e.function("indexLines"+e.name, "indexLinesArgs", "64 keys of 128 e4m3 to 128 lines of 64 float32.")
	e.op(`
		MOVQ indexLinesArgs_keys(AX), SI
		MOVQ indexLinesArgs_lines(AX), DI
		MOVQ indexLinesArgs_halves(AX), R8
		MOVQ $2, DX`)
	e.zero(30)
	e.op("VMOVUPS Z30, indexLinesArgs_codes(AX)")
	e.loop("half", "DX", func() {
		e.op("MOVQ $%d, CX", keys/16)
		e.loop("group", "CX", func() {
			e.op(`
				VMOVUPS indexLinesArgs_codes(AX), Z30
				VMOVUPS codeMask%s<>(SB), Z31`, e.name)
			for i := range 16 {
				e.op("VMOVDQU64 %d(SI), Z%d", i*keyBytes, i)
				e.op("VPANDD Z%d, Z31, Z%d", i, 16+i%8)
				e.op("VPMAXUB Z%d, Z30, Z30", 16+i%8)
			}
			e.op("VMOVUPS Z30, indexLinesArgs_codes(AX)")
			for round := range 4 {
				from, to := round%2*16, 16-round%2*16
				for i := range 8 {
					a, b := from+i, from+i+8
					e.op("VPUNPCKLBW Z%d, Z%d, Z%d", b, a, to+2*i)
					e.op("VPUNPCKHBW Z%d, Z%d, Z%d", b, a, to+2*i+1)
				}
			}
			e.op("VMOVUPS halfMask%s<>(SB), Z31", e.name)
			for i := range 16 {
				a, b, at := 16+i%4*2, 17+i%4*2, i%4*128
				e.list(`
					VEXTRACTI64X4 $1, Z{i}, Y{b}
					VPMOVSXBW Y{i}, Z{a}
					VPMOVSXBW Y{b}, Z{b}`, "i", i, "a", a, "b", b)
				for half, r := range []int{a, b} {
					e.op(`
						VPSLLW $7, Z%d, Z%d
						VPANDD Z%d, Z31, Z%d
						VMOVUPS Z%d, %d(R8)`, r, r, r, r, r, at+64*half)
				}
				for lane := range 4 {
					e.op(`
						VCVTPH2PS %d(R8), Z%d
						VMOVUPS Z%d, %d(DI)`, at+32*lane, 24+lane, 24+lane, (16*lane+i)*lineBytes)
				}
			}
			e.op(`
				ADDQ $%d, SI
				ADDQ $64, DI`, 16*keyBytes)
		})
		e.note("the other 64 codes of the same keys")
		e.op(`
			SUBQ $%d, SI
			ADDQ $%d, DI`, keys*keyBytes-64, 64*lineBytes-lineBytes)
	})
	e.ret()
}

// indexHeads writes the kernel that multiplies six heads at a time with 128 elements of the keys; products are then
// rectified, weighted and added in registers.
//
//	AX arguments   SI heads of the query   DI lines [128, 64]   R8 weights   R9 sums [64]
//	BX, R10 cursors in lines and heads     CX steps left        R13 heads left
func indexHeads(e *emitter) {
	const most, sums, zero, weight = 6, 24, 28, 29
	e.function("indexHeads"+e.name, "indexHeadsArgs", "scores = scale * sum of w*max(0, products).")
	e.op(`
		MOVQ indexHeadsArgs_q(AX), SI
		MOVQ indexHeadsArgs_lines(AX), DI
		MOVQ indexHeadsArgs_w(AX), R8
		MOVQ indexHeadsArgs_scores(AX), R9
		MOVQ indexHeadsArgs_heads(AX), R13`)
	e.zero(0)
	for v := range 4 {
		e.op("VMOVUPS Z0, %d(R9)", 64*v)
	}
	done := e.label("done")
	for heads := most; heads > 0; heads-- {
		group, fewer := e.label("heads"), e.label("fewer")
		e.at(group)
		e.op(`
			CMPQ R13, $%d
			JLT %s`, heads, fewer)
		indexProducts(e, heads)
		for v := range 4 {
			e.op("VMOVUPS %d(R9), Z%d", 64*v, sums+v)
		}
		e.zero(zero)
		for m := range heads {
			e.op("VBROADCASTSS %d(R8), Z%d", 4*m, weight+m%3)
			for v := range 4 {
				e.op("VMAXPS Z%d, Z%d, Z%d", 4*m+v, zero, 4*m+v) // the result is NaN if the first operand is NaN
				e.op("VFMADD231PS Z%d, Z%d, Z%d", 4*m+v, weight+m%3, sums+v)
			}
		}
		for v := range 4 {
			e.op("VMOVUPS Z%d, %d(R9)", sums+v, 64*v)
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, R8
			SUBQ $%d, R13`, heads*512, heads*4, heads)
		if heads == most {
			e.op("JMP %s", group)
		} else {
			e.op("JMP %s", done) // these were all heads that were left
		}
		e.at(fewer)
	}
	e.at(done)
	e.op("MOVQ indexHeadsArgs_scales(AX), R10")
	for v := range 4 {
		e.op("VMOVUPS %d(R9), Z0", 64*v)
		e.op("VMULPS %d(R10), Z0, Z0", 64*v)
		e.op("VMOVUPS Z0, %d(R9)", 64*v)
	}
	e.ret()
}

// indexProducts multiplies some heads by the lines of 64 keys.
func indexProducts(e *emitter, heads int) {
	const dim, unroll = 128, 4
	for i := range 4 * heads {
		e.zero(i)
	}
	e.op(`
		MOVQ DI, BX
		MOVQ SI, R10
		MOVQ $%d, CX`, dim/unroll)
	e.loop("loop", "CX", func() {
		for u := range unroll {
			for v := range 4 {
				e.op("VMOVUPS %d(BX), Z%d", 256*u+64*v, 24+v)
			}
			for m := range heads {
				e.op("VBROADCASTSS %s, Z%d", fmt.Sprintf("%d(R10)", 4*u+512*m), 28+m%4)
				for v := range 4 {
					e.op("VFMADD231PS Z%d, Z%d, Z%d", 24+v, 28+m%4, 4*m+v)
				}
			}
		}
		e.op(`
			ADDQ $%d, BX
			ADDQ $%d, R10`, 256*unroll, 4*unroll)
	})
}
