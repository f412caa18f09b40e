package main

import "math"

// FP4 keys of the indexer are 128 e2m1 codes, two in a byte, with an e8m0 exponent for each 32 of them.

// indexFP4Lines writes the kernel that turns 64 keys into 128 lines of 64 float32. The dwords of sixteen keys are
// transposed, so that each register has eight codes of every key. Exponent 0 makes zeros: the layouts write no exponent
// below 1.
//
//	AX arguments   SI codes   DX exponents   DI lines   CX groups of 16 keys left
//	16 values of codes   17 to 20 scales   21 NaN   22 255   23, 24 values
func indexFP4Lines(e *emitter) {
	const group, keyBytes, lineBytes = 16, 64, 4 * 64
	const table, scale, nan, last = 16, 17, 21, 22
	laneWords(e, "indexFP4Values", func(i int) int {
		return int(math.Float32bits([8]float32{0, 0.5, 1, 1.5, 2, 3, 4, 6}[i%8])) | i/8<<31
	})
	words(e, "indexFP4NaN", 0x7FC00000)
	words(e, "indexFP4Last", 255)
	e.function("indexFP4Lines"+e.name, "indexFP4Args", "64 keys of 128 e2m1 to 128 lines of 64 float32.")
	e.op(`
		MOVQ indexFP4Args_codes(AX), SI
		MOVQ indexFP4Args_exponents(AX), DX
		MOVQ indexFP4Args_wide(AX), DI
		MOVQ $%d, CX`, 64/group)
	e.loop("group", "CX", func() {
		for i := range group {
			e.op("VMOVDQU64 %d(SI), Z%d", i*keyBytes, i)
		}
		columns := transpose16(e)
		e.op(`
			VMOVDQU64 indexFP4Values<>(SB), Z%d
			VBROADCASTSS indexFP4NaN<>(SB), Z%d
			VBROADCASTSS indexFP4Last<>(SB), Z%d
			VMOVDQU64 (DX), Z%d`, table, nan, last, scale)
		for g := 3; g >= 0; g-- {
			z := scale + g
			if g > 0 {
				e.op("VPSRLD $%d, Z%d, Z%d", 8*g, scale, z)
			}
			e.op("VPANDD Z%d, Z%d, Z%d", last, z, z)
			e.op("VPCMPEQD Z%d, Z%d, K1", last, z)
			e.op("VPSLLD $23, Z%d, Z%d", z, z)
			e.op("VMOVAPS Z%d, K1, Z%d", nan, z)
		}
		for d, z := range columns {
			for n := range 8 {
				to := last + 1 + n%2
				codes := z
				if n > 0 {
					codes = to
					e.op("VPSRLD $%d, Z%d, Z%d", 4*n, z, to)
				}
				e.op("VPERMPS Z%d, Z%d, Z%d", table, codes, to)
				e.op("VMULPS Z%d, Z%d, Z%d", scale+d/4, to, to)
				e.op("VMOVUPS Z%d, %d(DI)", to, (8*d+n)*lineBytes)
			}
		}
		e.op(`
			ADDQ $%d, SI
			ADDQ $%d, DX
			ADDQ $64, DI`, group*keyBytes, group*4)
	})
	e.ret()
}

// indexFP4Rows writes the kernel that widens keys to rows of float32 in the order of nibbleRows: of each 64 elements
// the even ones of a group of 32, the odd ones, and then those of the other group.
//
//	AX arguments   SI codes   DX exponents   DI rows   CX keys left
//	0 even codes   1 odd codes   2, 3 values   4 scale   13 values of codes   14 lower half of bytes   15 one half
func indexFP4Rows(e *emitter) {
	e.function("indexFP4Rows"+e.name, "indexFP4Args", "keys of 128 e2m1 to rows of float32.")
	e.op(`
		MOVQ indexFP4Args_codes(AX), SI
		MOVQ indexFP4Args_scales(AX), DX
		MOVQ indexFP4Args_wide(AX), DI
		MOVQ indexFP4Args_keys(AX), CX
		VMOVDQU nibbleBytes<>(SB), Y%d
		VMOVDQU nibbleLower<>(SB), Y%d`, nibbleTable, nibbleMask)
	e.loop("key", "CX", func() {
		for group := range 4 {
			e.op(`
				VBROADCASTSS %d(DX), Y4
				VMOVDQU %d(SI), X0
				VPSRLW $4, X0, X1`, 4*group, 16*group)
			for i := range 2 {
				e.op("VPAND X%d, X%d, X%d", nibbleMask, i, i)
				e.op("VPSHUFB X%d, X%d, X%d", i, nibbleTable, i)
			}
			for i := range 4 {
				z := 2 + i%2
				e.op("VPMOVSXBD X%d, Y%d", i/2, z)
				if i%2 == 0 {
					e.op("VPSRLDQ $8, X%d, X%d", i/2, i/2)
				}
				e.op("VCVTDQ2PS Y%d, Y%d", z, z)
				e.op("VMULPS Y4, Y%d, Y%d", z, z)
				e.op("VMOVUPS Y%d, %d(DI)", z, 4*(32*group+8*i))
			}
		}
		e.op(`
			ADDQ $64, SI
			ADDQ $16, DX
			ADDQ $512, DI`)
	})
	e.ret()
}
