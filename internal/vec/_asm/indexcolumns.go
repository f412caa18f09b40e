package main

import "fmt"

// emitIndexColumns writes the indexer's scores of 64 keys, a lane for each key: products of six heads at a time with
// 128 elements, which are then rectified, weighted and added in registers.
//
//	AX arguments   SI heads of the query   DI lines [128, 64]   R8 weights   R9 sums [64]
//	BX, R10 cursors in lines and heads     CX steps left        R13 heads left
func (e *emitter) emitIndexColumns() {
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
		e.indexProducts(heads)
		for v := range 4 {
			e.op("VMOVUPS %d(R9), Z%d", 64*v, sums+v)
		}
		e.zero(zero)
		for m := range heads {
			e.op("VBROADCASTSS %d(R8), Z%d", 4*m, weight+m%3)
			for v := range 4 {
				e.op("VMAXPS Z%d, Z%d, Z%d", 4*m+v, zero, 4*m+v) // the first operand, if one is NaN
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
			e.op("JMP %s", done) // all that were left
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
func (e *emitter) indexProducts(heads int) {
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
