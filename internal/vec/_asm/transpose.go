package main

// emitTranspose writes the kernel that turns 64 keys of 128 bytes into 128 rows
// of 64 bytes. Sixteen keys by 64 bytes are 16 registers; interleaving register
// i with register i+8, four times over, transposes the 16 x 16 bytes of each
// 128-bit lane.
//
//	AX arguments   SI a   DI dst   CX keys left   DX halves of the keys left
func (e *emitter) emitTranspose() {
	const keys, keyBytes, rowBytes = 64, 128, 64
	e.function("transpose"+e.name, "vecArgs", "64 keys of 128 bytes at a to 128 rows of 64 at dst.")
	e.op(`
		MOVQ vecArgs_a(AX), SI
		MOVQ vecArgs_dst(AX), DI
		MOVQ $2, DX`)
	half, group := e.label("half"), e.label("group")
	e.at(half)
	e.op("MOVQ $%d, CX", keys/16)
	e.at(group)
	for i := range 16 {
		e.op("VMOVDQU64 %d(SI), Z%d", i*keyBytes, i)
	}
	for round := range 4 {
		from, to := round%2*16, 16-round%2*16
		for i := range 8 {
			a, b := from+i, from+i+8
			e.op("VPUNPCKLBW Z%d, Z%d, Z%d", b, a, to+2*i)
			e.op("VPUNPCKHBW Z%d, Z%d, Z%d", b, a, to+2*i+1)
		}
	}
	for i := range 16 {
		for lane := range 4 {
			e.op("VEXTRACTI32X4 $%d, Z%d, %d(DI)", lane, i, (16*lane+i)*rowBytes)
		}
	}
	e.op(`
		ADDQ $%d, SI
		ADDQ $16, DI
		DECQ CX
		JNZ %s`, 16*keyBytes, group)
	e.note("the other 64 bytes of the same keys")
	e.op(`
		SUBQ $%d, SI
		ADDQ $%d, DI
		DECQ DX
		JNZ %s`, keys*keyBytes-64, 64*rowBytes-rowBytes, half)
	e.ret()
}
