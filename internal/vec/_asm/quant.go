package main

// emitRotateQuant writes the kernel that prepares indexer vectors of 128
// elements: rounded to bfloat16, Hadamard rotated in the order of package num,
// times 128^-1/2, rounded again, and quantised with one scale. A vector is
// registers 0 to 7.
//
//	AX arguments   SI vectors   DI codes   DX scales   CX vectors left   R8 rule of scales
//	Z8 to Z15 in between   Z16 on constants
func emitRotateQuant(e *emitter) {
	consts := []struct {
		name string
		word uint32
	}{
		{"quantOne", 1}, {"quantHalf", 0x7FFF}, {"quantUpper", 0xFFFF0000}, {"quantQuiet", 0x400000},
		{"quantNorm", 0x3DB504F3}, // 128^-1/2
		{"quantAbs", 0x7FFFFFFF}, {"quantInf", 0x7F800000}, {"quantTop", 0x7F7FFFFF},
		{"quantFloor", 0x38D1B717}, // 1e-4
		{"quantMax", 0x43E00000},   // 448
		{"quantLeast", 121}, {"quantUnits", 20}, {"quantSign", 0x80}, {"quantNaN", 0x7F},
		{"quantCarry", 0x7FFFFF}, {"quantExpHigh", 254},
	}
	at := map[string]int{}
	e.raw("")
	for i, c := range consts {
		e.constant(c.name, c.word)
		at[c.name] = 16 + i
	}
	e.function("rotateQuantavx512", "quantArgs", "rotates n vectors of 128 at v in place and quantises them.")
	e.op(`
		MOVQ quantArgs_v(AX), SI
		MOVQ quantArgs_codes(AX), DI
		MOVQ quantArgs_scales(AX), DX
		MOVQ quantArgs_n(AX), CX
		MOVQ quantArgs_pow2(AX), R8`)
	for _, c := range consts {
		e.op("VMOVUPS %s<>(SB), Z%d", c.name, at[c.name])
	}
	for i, mask := range []int{0xAAAA, 0xCCCC, 0xF0F0, 0xFF00} {
		e.op(`
			MOVQ $%d, R9
			KMOVW R9, K%d`, mask, 1+i)
	}
	loop, free := e.label("loop"), e.label("free")
	e.at(loop)
	for i := range 8 {
		e.op("VMOVUPS %d(SI), Z%d", 64*i, i)
		roundHalf(e, at, i, 8)
	}
	// Strides below a register: the partner of an element is in another lane. In the upper lane of a pair, the element
	// itself is subtracted.
	for stage := range 4 {
		for i := range 8 {
			switch stage {
			case 0:
				e.op("VPSHUFD $0xB1, Z%d, Z8", i)
			case 1:
				e.op("VPSHUFD $0x4E, Z%d, Z8", i)
			case 2:
				e.op("VSHUFF64X2 $0xB1, Z%d, Z%d, Z8", i, i)
			case 3:
				e.op("VSHUFF64X2 $0x4E, Z%d, Z%d, Z8", i, i)
			}
			e.op(`
				VADDPS Z8, Z%d, Z9
				VSUBPS Z%d, Z8, K%d, Z9
				VMOVAPS Z9, Z%d`, i, i, 1+stage, i)
		}
	}
	for _, h := range []int{1, 2, 4} {
		for i := range 8 {
			if i&h == 0 {
				e.op("VSUBPS Z%d, Z%d, Z8", i+h, i)
				e.op("VADDPS Z%d, Z%d, Z%d", i+h, i, i)
				e.op("VMOVAPS Z8, Z%d", i+h)
			}
		}
	}
	for i := range 8 {
		e.op("VMULPS Z%d, Z%d, Z%d", at["quantNorm"], i, i)
		roundHalf(e, at, i, 8)
		e.op("VMOVUPS Z%d, %d(SI)", i, 64*i)
	}

	e.note("the largest magnitude: NaN counts as zero, infinity as the largest number")
	e.op("VPXORD Z8, Z8, Z8")
	for i := range 8 {
		e.op(`
			VPANDD Z%d, Z%d, Z9
			VPCMPUD $2, Z%d, Z9, K5`, at["quantAbs"], i, at["quantInf"]) // magnitude <= infinity
		e.op("VPMAXUD Z9, Z8, K5, Z8")
	}
	e.op(`
		VEXTRACTF64X4 $1, Z8, Y9
		VPMAXUD Y9, Y8, Y8
		VEXTRACTF128 $1, Y8, X9
		VPMAXUD X9, X8, X8`)
	for _, order := range []int{0x4E, 0xB1} {
		e.op(`
			VPSHUFD $%#x, X8, X9
			VPMAXUD X9, X8, X8`, order)
	}
	e.op(`
		VPBROADCASTD X8, Z8
		VPMINUD Z%d, Z8, Z8
		VMAXPS Z%d, Z8, Z8
		VDIVPS Z%d, Z8, Z8
		TESTQ R8, R8
		JZ %s`, at["quantTop"], at["quantFloor"], at["quantMax"], free)
	e.note("the next power of two: the scale is positive and normal")
	e.op(`
		VPADDD Z%d, Z8, Z8
		VPSRLD $23, Z8, Z8
		VPMINUD Z%d, Z8, Z8
		VPSLLD $23, Z8, Z8`, at["quantCarry"], at["quantExpHigh"])
	e.at(free)
	e.op("VMOVSS X8, (DX)")
	for i := range 8 {
		quantRegister(e, at, i)
		e.op("VPMOVDB Z%d, %d(DI)", i, 16*i)
	}
	e.op(`
		ADDQ $512, SI
		ADDQ $128, DI
		ADDQ $4, DX
		DECQ CX
		JNZ %s`, loop)
	e.ret()
}

// roundHalf rounds register i to bfloat16, to nearest even, and overwrites t and t+1.
func roundHalf(e *emitter, at map[string]int, i, t int) {
	e.op("VCMPPS $3, Z%d, Z%d, K5", i, i) // NaN
	e.op("VPSRLD $16, Z%d, Z%d", i, t)
	e.op("VPANDD Z%d, Z%d, Z%d", at["quantOne"], t, t)
	e.op("VPADDD Z%d, Z%d, Z%d", at["quantHalf"], t, t)
	e.op("VPADDD Z%d, Z%d, Z%d", i, t, t)
	e.op("VPORD Z%d, Z%d, K5, Z%d", at["quantQuiet"], i, t)
	e.op("VPANDD Z%d, Z%d, Z%d", at["quantUpper"], t, i)
}

// quantRegister replaces register i by the codes of i/Z8, and overwrites Z9 to Z13. The arithmetic is that of package
// num: adding a number whose last bit equals one step of the code leaves the rounded number of steps.
func quantRegister(e *emitter, at map[string]int, i int) {
	e.op(`
		VDIVPS Z8, Z%d, Z9
		VPSRLD $24, Z9, Z13
		VPANDD Z%d, Z13, Z13
		VCMPPS $3, Z9, Z9, K5
		VPSRLD $24, Z%d, K5, Z13`, i, at["quantSign"], i) // a NaN keeps its own sign
	e.op(`
		VPANDD Z%d, Z9, Z9
		VPMINUD Z%d, Z9, Z9
		VPSRLD $23, Z9, Z10
		VPMAXUD Z%d, Z10, Z10
		VPADDD Z%d, Z10, Z11
		VPSLLD $23, Z11, Z11
		VADDPS Z11, Z9, Z12
		VPSUBD Z11, Z12, Z12`, at["quantAbs"], at["quantMax"], at["quantLeast"], at["quantUnits"])
	e.op(`
		VPSUBD Z%d, Z10, Z10
		VPSLLD $3, Z10, Z10
		VPADDD Z10, Z12, Z12
		VMOVDQA32 Z%d, K5, Z12
		VPANDD Z%d, Z13, Z13
		VPORD Z12, Z13, Z%d`, at["quantLeast"], at["quantNaN"], at["quantSign"], i)
}
