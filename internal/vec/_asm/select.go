package main

// emitSelect writes the loops of selection: how many numbers reach a floor, and
// which. Both take whole registers. NaN reaches nothing.
//
//	AX arguments   SI numbers   CX registers left   R8 how many so far
//	DI places of those kept     DX those kept       R9 places of all, where they are not counted
func emitSelect(e *emitter) {
	emitCount(e)
	if e.wide() {
		lanesData(e)
		emitCollect(e, "collectCounted", false)
		emitCollect(e, "collectPlaced", true)
	}
}

func emitCount(e *emitter) {
	e.function("countAbove"+e.name, "selectArgs", "n = how many of steps registers at x reach floor.")
	e.op(`
		MOVQ selectArgs_x(AX), SI
		MOVQ selectArgs_steps(AX), CX
		VBROADCASTSS selectArgs_floor(AX), V1
		XORQ R8, R8`)
	e.loop("loop", "CX", func() {
		if e.wide() {
			e.op("VCMPPS $2, (SI), Z1, K1") // floor <= x
			e.op("KMOVW K1, R10")
		} else {
			e.op(`
				VCMPPS $2, (SI), Y1, Y0
				VMOVMSKPS Y0, R10`)
		}
		e.op(`
			POPCNTQ R10, R10
			ADDQ R10, R8
			ADDQ $%d, SI`, e.bytes())
	})
	e.op("MOVQ R8, selectArgs_n(AX)")
	e.ret()
}

// emitCollect writes the kernel that keeps the numbers that reach the floor and
// their places, which count up from base or are read. Stores are of whole
// registers: the outputs are one register longer than the numbers that are kept.
func emitCollect(e *emitter, name string, placed bool) {
	e.function(name+"avx512", "selectArgs", "keeps those of steps registers at x that reach floor, and their places.")
	for _, f := range [][2]string{{"x", "SI"}, {"steps", "CX"}, {"at", "DI"}, {"kept", "DX"}, {"places", "R9"}} {
		e.op("MOVQ selectArgs_%s(AX), %s", f[0], f[1])
	}
	e.op(`
		VBROADCASTSS selectArgs_floor(AX), Z1
		XORQ R8, R8`)
	if !placed {
		e.op(`
			VPBROADCASTD selectArgs_base(AX), Z2
			VPADDD lanes<>(SB), Z2, Z2
			MOVQ $16, R10
			VPBROADCASTD R10, Z3`)
	}
	loop, next := e.label("loop"), e.label("next")
	e.at(loop)
	e.op(`
		VMOVUPS (SI), Z0
		VCMPPS $2, Z0, Z1, K1
		KMOVW K1, R10
		TESTQ R10, R10
		JZ %s`, next)
	if placed {
		e.op("VMOVDQU32 (R9), Z2")
	}
	e.op(`
		VPCOMPRESSD.Z Z2, K1, Z4
		VCOMPRESSPS.Z Z0, K1, Z5
		VMOVDQU32 Z4, (DI)(R8*4)
		VMOVUPS Z5, (DX)(R8*4)
		POPCNTQ R10, R10
		ADDQ R10, R8`)
	e.at(next)
	if placed {
		e.op("ADDQ $64, R9")
	} else {
		e.op("VPADDD Z3, Z2, Z2")
	}
	e.op(`
		ADDQ $64, SI
		DECQ CX
		JNZ %s
		MOVQ R8, selectArgs_n(AX)`, loop)
	e.ret()
}

// lanesData writes 0 to 15.
func lanesData(e *emitter) {
	data := make([]byte, 64)
	for i := range 16 {
		data[4*i] = byte(i)
	}
	table(e, "lanes", data)
}
