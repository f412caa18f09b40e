package main

// Registers of the decoder of entries.
const (
	zOrder, zMagnitude, zCode, zSeen = 26, 25, 23, 22
	zScale                           = 16
)

// emitEntry writes the kernel that brings one V4 entry, 448 e4m3 in groups of 64
// with an exponent each and 64 bfloat16, to a row of bfloat16.
//
//	AX arguments   SI codes   DX exponents   DI row   R8 an exponent
func emitEntry(e *emitter) {
	const a, groups, ropeAt = "entryArgs_", 7, 448
	e.function("entryamx", "entryArgs", "one V4 entry to bfloat16.")
	e.op(`
		MOVQ %sdata(AX), SI
		MOVQ %sscales(AX), DX
		MOVQ %srow(AX), DI`, a, a, a)
	codeTables(e)
	e.op(`
		VMOVDQU64 %s<>(SB), Z%d
		VMOVDQU64 magnitude<>(SB), Z%d
		VMOVDQU64 codeBits<>(SB), Z%d`, inOrder, zOrder, zMagnitude, zCode)
	e.op("VPXORD Z%d, Z%d, Z%d", zSeen, zSeen, zSeen)
	for g := range groups {
		e.op(`
			MOVBQZX %d(DX), R8
			SUBQ $127, R8
			SHLQ $7, R8
			VPBROADCASTW R8, Z%d
			VPERMQ %d(SI), Z%d, Z0`, g, zScale, 64*g, zOrder)
		addExponent(e, 0, zScale)
		e.op(`
			VMOVDQU64 Z0, %d(DI)
			VMOVDQU64 Z1, %d(DI)`, 128*g, 128*g+64)
	}
	for i := range 2 {
		e.op(`
			VMOVDQU64 %d(SI), Z0
			VMOVDQU64 Z0, %d(DI)`, ropeAt+64*i, 128*groups+64*i)
	}
	e.op(`
		VPCMPEQB Z%d, Z%d, K1
		KMOVQ K1, R9
		MOVQ R9, %snan(AX)`, zCode, zSeen, a)
	e.ret()
}

// addExponent decodes the codes in register z and adds an exponent to all numbers except zeros. It updates the largest
// code and overwrites z+1 and z+2.
func addExponent(e *emitter, z, exponent int) {
	e.list(`
		VPANDD Z{zCode}, Z{z}, Z{z+1}
		VPMAXUB Z{z+1}, Z{zSeen}, Z{zSeen}`, "zCode", zCode, "z", z, "zSeen", zSeen)
	decodeCodes(e, z, z+1, z+2)
	for i := range 2 {
		e.op("VPTESTMW Z%d, Z%d, K1", zMagnitude, z+i)
		e.op("VPADDW Z%d, Z%d, K1, Z%d", exponent, z+i, z+i)
	}
}
