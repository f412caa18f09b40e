package main

// widenE4M3 writes dst = a*b from e4m3, where b has one scale for every 128
// elements, stride bytes apart. The arithmetic is that of the row kernels: halves of 2^-8 the
// value, times 256 times the scale. NaN codes come out as numbers; codes
// receives the largest code, without its sign, so that the caller can detect them.
//
//	AX arguments   DI dst   SI a   DX b   CX registers left
//	R8 registers of this block
func (v *vectors) widenE4M3(e *emitter) {
	const scale, half, code, seen = 15, 14, 13, 12
	e.function("widenE4M3"+v.name, "vecArgs", "dst = a*b, from e4m3, one b per 128; s is 256.")
	v.open(e)
	e.op("VMOVUPS %s, %s", v.konst("halfMask"), v.r(half))
	e.op("VMOVUPS %s, %s", v.konst("codeMask"), v.r(code))
	v.zero(e, seen)
	pair, single, next := e.label("pair"), e.label("single"), e.label("next")
	block := v.openBlock(e, scale)
	e.op("SUBQ $2, R8")
	e.op("JLT %s", single)

	e.at(pair)
	e.op("VPAND (SI), %s, %s", v.h(code), v.h(2))
	e.op("VPMAXUB %s, %s, %s", v.h(2), v.h(seen), v.h(seen))
	e.op("VPMOVSXBW (SI), %s", v.r(0))
	e.op("VPSLLW $7, %s, %s", v.r(0), v.r(0))
	v.and(e, v.r(half), 0, 0)
	// Halves pass through memory, as in the row kernels: here through dst.
	e.op("VMOVUPS %s, (DI)", v.r(0))
	for i := range 2 {
		e.op("VCVTPH2PS %d(DI), %s", i*v.bytes()/2, v.r(i))
	}
	for i := range 2 {
		e.op("VMULPS %s, %s, %s", v.r(scale), v.r(i), v.r(i))
		e.op("VMOVUPS %s, %d(DI)", v.r(i), i*v.bytes())
	}
	e.op("ADDQ $%d, SI", 2*v.lanes)
	e.op("ADDQ $%d, DI", 2*v.bytes())
	e.op("SUBQ $2, R8")
	e.op("JGE %s", pair)

	e.at(single)
	e.op("ADDQ $2, R8")
	e.op("JZ %s", next)
	if v.wide() {
		e.op("VMOVDQU (SI), X0")
	} else {
		e.op("VMOVQ (SI), X0")
	}
	e.op("VPAND X%d, X0, X2", code)
	e.op("VPMAXUB %s, %s, %s", v.h(2), v.h(seen), v.h(seen))
	e.op("VPMOVSXBW X0, %s", v.h(0))
	e.op("VPSLLW $7, %s, %s", v.h(0), v.h(0))
	e.op("VPAND %s, %s, %s", v.h(half), v.h(0), v.h(0))
	e.op("VCVTPH2PS %s, %s", v.h(0), v.r(0))
	e.op("VMULPS %s, %s, %s", v.r(scale), v.r(0), v.r(0))
	e.op("VMOVUPS %s, (DI)", v.r(0))
	e.op("ADDQ $%d, SI", v.lanes)
	e.op("ADDQ $%d, DI", v.bytes())

	e.at(next)
	e.op("TESTQ CX, CX")
	e.op("JNZ %s", block)
	e.op("VMOVUPS %s, vecArgs_codes(AX)", v.r(seen))
	e.ret()
}

// openBlock begins the loop over blocks of 128 elements: R8 becomes the
// registers of this block, taken from CX, and reg s times the scale at DX,
// which moves on by stride. It uses register 0 and returns the loop's label.
func (v *vectors) openBlock(e *emitter, reg int) string {
	perBlock := 128 / v.lanes
	block, full := e.label("block"), e.label("full")
	e.at(block)
	e.op("MOVQ CX, R8")
	e.op("CMPQ R8, $%d", perBlock)
	e.op("JLE %s", full)
	e.op("MOVQ $%d, R8", perBlock)
	e.at(full)
	e.op("SUBQ R8, CX")
	e.op("VBROADCASTSS vecArgs_s(AX), %s", v.r(reg))
	e.op("VBROADCASTSS (DX), %s", v.r(0))
	e.op("VMULPS %s, %s, %s", v.r(0), v.r(reg), v.r(reg))
	e.op("ADDQ vecArgs_stride(AX), DX")
	return block
}

// scaleExact writes dst = a*(s*b), where b has one factor for every 128
// elements, multiplies back, and sets nan unless that gives a again: then dst
// is exact, given that s*b is a power of two.
func (v *vectors) scaleExact(e *emitter) {
	const factor, inverse, bad = 15, 14, 13
	e.function("scaleExact"+v.name, "vecArgs", "dst = a*(s*b), one b per 128; nan is set where that rounds.")
	v.open(e)
	v.zero(e, bad)
	loop := e.label("loop")
	block := v.openBlock(e, factor)
	e.op("VMOVUPS %s, %s", v.konst("one"), v.r(inverse))
	e.op("VDIVPS %s, %s, %s", v.r(factor), v.r(inverse), v.r(inverse))
	e.at(loop)
	e.op("VMOVUPS (SI), %s", v.r(0))
	e.op("VMULPS %s, %s, %s", v.r(0), v.r(factor), v.r(1))
	e.op("VMOVUPS %s, (DI)", v.r(1))
	e.op("VMULPS %s, %s, %s", v.r(1), v.r(inverse), v.r(1))
	v.xor(e, v.r(1), 0, 1)
	if v.wide() {
		e.op("VPORD Z1, Z%d, Z%d", bad, bad)
	} else {
		e.op("VPOR Y1, Y%d, Y%d", bad, bad)
	}
	e.op("ADDQ $%d, SI", v.bytes())
	e.op("ADDQ $%d, DI", v.bytes())
	e.op("DECQ R8")
	e.op("JNZ %s", loop)
	e.op("TESTQ CX, CX")
	e.op("JNZ %s", block)
	if v.wide() {
		e.op("VPTESTMD Z%d, Z%d, K1", bad, bad)
		e.op("KMOVW K1, R8")
	} else {
		e.op("VPXOR Y0, Y0, Y0")
		e.op("VPCMPEQD Y0, Y%d, Y0", bad)
		e.op("VMOVMSKPS Y0, R8")
		e.op("XORQ $0xFF, R8")
	}
	e.op("MOVQ R8, vecArgs_nan(AX)")
	e.ret()
}
