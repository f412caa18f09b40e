package main

// widenE4M3 writes dst = a*b from e4m3, where b has one scale for a block of elements; vecArgs.each is the number of
// registers of a block. The arithmetic is that of the row kernels: halves of 2^-8 the value, times 256 times the scale.
// NaN codes come out as numbers; codes receives the largest code, without its sign, so that the caller can detect them.
//
//	AX arguments   DI dst   SI a   DX b   CX registers left
//	R8 registers of this block
func (v *vectors) widenE4M3() {
	const scale, half, code, seen = 15, 14, 13, 12
	v.function("widenE4M3"+v.name, "vecArgs", "dst = a*b, from e4m3, one b per block; s is 256.")
	v.open()
	v.op("VMOVUPS %s, V%d", v.konst("halfMask"), half)
	v.op("VMOVUPS %s, V%d", v.konst("codeMask"), code)
	v.zero(seen)
	pair, single, next := v.label("pair"), v.label("single"), v.label("next")
	block := v.openBlock(scale)
	v.op(`
		SUBQ $2, R8
		JLT %s`, single)

	v.at(pair)
	v.op(`
		VPAND (SI), H%d, H2
		VPMAXUB H2, H%d, H%d
		VPMOVSXBW (SI), V0
		VPSLLW $7, V0, V0`, code, seen, seen)
	v.and("V14", 0, 0)
	// Halves are stored to dst and converted from there, as in the row kernels.
	v.op("VMOVUPS V0, (DI)")
	for i := range 2 {
		v.op("VCVTPH2PS %d(DI), V%d", i*v.bytes()/2, i)
	}
	for i := range 2 {
		v.op("VMULPS V%d, V%d, V%d", scale, i, i)
		v.op("VMOVUPS V%d, %d(DI)", i, i*v.bytes())
	}
	v.op(`
		ADDQ $%d, SI
		ADDQ $%d, DI
		SUBQ $2, R8
		JGE %s`, 2*v.lanes, 2*v.bytes(), pair)

	v.at(single)
	v.op(`
		ADDQ $2, R8
		JZ %s`, next)
	if v.wide() {
		v.op("VMOVDQU (SI), X0")
	} else {
		v.op("VMOVQ (SI), X0")
	}
	v.op(`
		VPAND X%d, X0, X2
		VPMAXUB H2, H%d, H%d
		VPMOVSXBW X0, H0
		VPSLLW $7, H0, H0
		VPAND H%d, H0, H0
		VCVTPH2PS H0, V0`, code, seen, seen, half)
	v.op(`
		VMULPS V%d, V0, V0
		VMOVUPS V0, (DI)
		ADDQ $%d, SI
		ADDQ $%d, DI`, scale, v.lanes, v.bytes())

	v.at(next)
	v.op(`
		TESTQ CX, CX
		JNZ %s
		VMOVUPS V%d, vecArgs_codes(AX)`, block, seen)
	v.ret()
}

// openBlock starts the loop over blocks of vecArgs.each registers: R8 becomes the number of registers of this block,
// which is subtracted from CX, and reg becomes s times the scale at DX, which advances. It overwrites register 0 and
// returns the label of the loop.
func (v *vectors) openBlock(reg int) string {
	block, full := v.label("block"), v.label("full")
	v.at(block)
	v.op(`
		MOVQ CX, R8
		CMPQ R8, vecArgs_each(AX)
		JLE %s
		MOVQ vecArgs_each(AX), R8`, full)
	v.at(full)
	v.op(`
		SUBQ R8, CX
		VBROADCASTSS vecArgs_s(AX), V%d
		VBROADCASTSS (DX), V0
		VMULPS V0, V%d, V%d
		ADDQ $4, DX`, reg, reg, reg)
	return block
}

// scaleExact writes dst = a*(s*b), where b has one factor for every block, multiplies back, and sets nan unless that
// gives a again: then dst is exact, given that s*b is a power of two. Its inverse has the exponent 254 - e, where e is
// the exponent of s*b as stored.
func (v *vectors) scaleExact() {
	const factor, inverse, bad = 15, 14, 13
	v.constant("exponents"+v.name, 254<<23)
	v.function("scaleExact"+v.name, "vecArgs", "dst = a*(s*b), one b per block; nan is set where that rounds.")
	v.open()
	v.zero(bad)
	loop := v.label("loop")
	block := v.openBlock(factor)
	v.op("VMOVUPS %s, V%d", v.konst("exponents"), inverse)
	v.op("VPSUBD V%d, V%d, V%d", factor, inverse, inverse)
	v.at(loop)
	v.op(`
		VMOVUPS (SI), V0
		VMULPS V0, V%d, V1
		VMOVUPS V1, (DI)
		VMULPS V1, V%d, V1`, factor, inverse)
	v.xor("V1", 0, 1)
	if v.wide() {
		v.op("VPORD Z1, Z%d, Z%d", bad, bad)
	} else {
		v.op("VPOR Y1, Y%d, Y%d", bad, bad)
	}
	v.op(`
		ADDQ $%d, SI
		ADDQ $%d, DI
		DECQ R8
		JNZ %s
		TESTQ CX, CX
		JNZ %s`, v.bytes(), v.bytes(), loop, block)
	if v.wide() {
		v.op(`
			VPTESTMD Z%d, Z%d, K1
			KMOVW K1, R8`, bad, bad)
	} else {
		v.op(`
			VPXOR Y0, Y0, Y0
			VPCMPEQD Y0, Y%d, Y0
			VMOVMSKPS Y0, R8
			XORQ $0xFF, R8`, bad)
	}
	v.op("MOVQ R8, vecArgs_nan(AX)")
	v.ret()
}
