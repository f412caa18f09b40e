package main

// Quantisation of rows of x to eight bits: see quantRowGo.
//
//	SI x   DI codes   DX scales   CX sums   R8 parts   R9 groups left
//	Z31 all bits but the sign   Z30 127   Z29 least magnitude
func quantStart(e *emitter, name, doc string) {
	e.function(name, "blockQuantArgs", doc)
	e.op(`
		MOVQ blockQuantArgs_x(AX), SI
		MOVQ blockQuantArgs_codes(AX), DI
		MOVQ blockQuantArgs_scales(AX), DX
		MOVQ blockQuantArgs_sums(AX), CX
		MOVQ blockQuantArgs_parts(AX), R8
		MOVQ blockQuantArgs_groups(AX), R9
		VPBROADCASTD quantMagnitude<>(SB), Z31
		VBROADCASTSS quantMost<>(SB), Z30
		VPBROADCASTD quantLeast<>(SB), Z29`)
}

// inverse computes the largest magnitude in the lanes of register z, writes the scale, and leaves 127 divided by that
// magnitude in Z28. It overwrites z+1.
func inverse(e *emitter, z int) {
	e.list(`
		VEXTRACTI64X4 $1, Z{z}, Y{z+1}
		VPMAXUD Y{z+1}, Y{z}, Y{z}
		VEXTRACTI128 $1, Y{z}, X{z+1}
		VPMAXUD X{z+1}, X{z}, X{z}
		VPSHUFD $0x4E, X{z}, X{z+1}
		VPMAXUD X{z+1}, X{z}, X{z}
		VPSHUFD $0xB1, X{z}, X{z+1}
		VPMAXUD X{z+1}, X{z}, X{z}
		VDIVSS X30, X{z}, X{z+1}
		VSUBSS X{z}, X{z}, X28`, "z", z) // NaN unless the magnitude is finite
	e.op(`
		VADDSS X28, X%d, X%d
		VMOVSS X%d, (DX)
		ADDQ $4, DX
		VPCMPUD $5, X29, X%d, K1`, z+1, z+1, z+1, z) // true if the largest magnitude is not below the minimum
	e.list(`
		VDIVSS X{z}, X30, X{z+1}
		VMOVAPS.Z X{z+1}, K1, X{z+1}
		VBROADCASTSS X{z+1}, Z28`, "z", z)
}

// codesOf quantises the sixteen values at an offset from SI and stores the codes. The codes remain in register z as
// words.
func codesOf(e *emitter, at, z int) {
	e.op("VMULPS %d(SI), Z28, Z%d", 4*at, z)
	e.list(`
		VCVTPS2DQ Z{z}, Z{z}
		VPMOVSDB Z{z}, {at}(DI)`, "z", z, "at", at)
}

func emitQuant32(e *emitter) {
	words(e, "quantMagnitude", 0x7FFFFFFF)
	words(e, "quantMost", 0x42FE0000) // 127
	words(e, "quantLeast", (127-100)<<23)
	quantStart(e, "blockQuant32avx512", "quantises groups of 32.")
	e.loop("group", "R9", func() {
		e.op(`
			VPANDD (SI), Z31, Z0
			VPANDD 64(SI), Z31, Z1
			VPMAXUD Z0, Z1, Z0`)
		inverse(e, 0)
		codesOf(e, 0, 2)
		codesOf(e, 16, 3)
		// Codes beyond eight bits belong to a group that is not finite.
		e.op(`
			VPADDD Z2, Z3, Z2
			VEXTRACTI64X4 $1, Z2, Y3
			VPADDD Y3, Y2, Y2
			VEXTRACTI128 $1, Y2, X3
			VPADDD X3, X2, X2
			VPSHUFD $0x4E, X2, X3
			VPADDD X3, X2, X2
			VPSHUFD $0xB1, X2, X3
			VPADDD X3, X2, X2
			VMOVD X2, (CX)
			ADDQ $128, SI
			ADDQ $32, DI
			ADDQ $4, CX`)
	})
	e.ret()
}

func emitQuant256(e *emitter) {
	quantStart(e, "blockQuant256avx512", "quantises groups of 256.")
	e.op("VPBROADCASTD quantUpper<>(SB), Z27")
	e.loop("group", "R9", func() {
		for i := range 4 {
			e.op("VPANDD %d(SI), Z31, Z%d", 64*i, i)
		}
		for i := 4; i < 16; i++ {
			e.op(`
				VPANDD %d(SI), Z31, Z4
				VPMAXUD Z4, Z%d, Z%d`, 64*i, i%4, i%4)
		}
		e.op(`
			VPMAXUD Z0, Z1, Z0
			VPMAXUD Z2, Z3, Z2
			VPMAXUD Z0, Z2, Z0`)
		inverse(e, 0)
		t := tree{emitter: e, first: 18}
		for i := range 16 {
			codesOf(e, 16*i, 1)
			t.add(i, 1)
		}
		sums := t.out(0)
		e.op("VPMOVDW Z%d, (CX)", sums)
		// Sums of 32 codes, as the upper half of a float32 and the remainder.
		e.op(`
			VPSRLQ $32, Z%d, Z0
			VPADDD Z0, Z%d, Z0
			VPMOVQD Z0, Y0
			VCVTDQ2PS Y0, Y0
			VPANDD Y27, Y0, Y1
			VSUBPS Y1, Y0, Y0
			VPSRLD $16, Y1, Y1
			VPSRLD $16, Y0, Y0
			VPMOVDW Y1, (R8)
			VPMOVDW Y0, 16(R8)
			ADDQ $1024, SI
			ADDQ $256, DI
			ADDQ $32, CX
			ADDQ $32, R8`, sums, sums)
	})
	e.ret()
	words(e, "quantUpper", 0xFFFF0000)
}

// emitTurn writes the kernel that interleaves the words of sixteen rows, a line of each at a time.
//
//	SI rows   R9 bytes between them   DI interleaved   R8 lines left
func emitTurn(e *emitter) {
	e.function("blockTurnavx512", "blockTurnArgs", "interleaves the words of sixteen rows.")
	e.op(`
		MOVQ blockTurnArgs_from(AX), SI
		MOVQ blockTurnArgs_ld(AX), R9
		MOVQ blockTurnArgs_to(AX), DI
		MOVQ blockTurnArgs_lines(AX), R8`)
	e.loop("line", "R8", func() {
		e.op("MOVQ SI, R10")
		for r := range 16 {
			e.op(`
				VMOVUPS (R10), Z%d
				ADDQ R9, R10`, r)
		}
		for i, r := range transpose16(e) {
			e.op("VMOVUPS Z%d, %d(DI)", r, 64*i)
		}
		e.op(`
			ADDQ $64, SI
			ADDQ $1024, DI`)
	})
	e.ret()
}
