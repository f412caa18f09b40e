package main

// Groups of 16 keys are widened to four tiles each: tile t holds elements 32t to
// 32t+31, its row p the pair 32t+2p of all 16 keys. A chunk is 16 elements: lane l of
// register i takes those of key 4l+i, so that two rounds of interleaving bring the same
// pair of 16 keys together.
//
//	R13 codes of the group   R8 its tiles   DX the chunk, where it is widened again
//	Z26 to Z30 as for coded rows
const (
	keyBytes    = 128
	keyChunks   = keyBytes / 16
	chunkBytes  = 8 * 64 // of a tile
	groupBytes  = 4 * tileBytes
	fetchGroups = 4 // groups between the one that is widened and the one that is fetched
)

// loadChunk leaves the codes of eight pairs in four registers from z+8 on; those from z on are used.
func loadChunk(e *emitter, at, z int) {
	for i := range 4 {
		e.op("VMOVDQU %d(R13), X%d", at+i*keyBytes, z+i)
		for lane := 1; lane < 4; lane++ {
			e.op("VINSERTI32X4 $%d, %d(R13), Z%d, Z%d", lane, at+(4*lane+i)*keyBytes, z+i, z+i)
		}
	}
	for i, half := range []string{"L", "H"} {
		e.op("VPUNPCK%sWD Z%d, Z%d, Z%d", half, z+1, z, z+4+2*i)
		e.op("VPUNPCK%sWD Z%d, Z%d, Z%d", half, z+3, z+2, z+5+2*i)
	}
	for i := range 4 {
		e.op("VPUNPCK%sDQ Z%d, Z%d, Z%d", []string{"L", "H"}[i%2], z+5+i/2*2, z+4+i/2*2, z+8+i)
	}
}

// widenChunk widens a chunk of a group, through registers 10 to 25.
func widenChunk(e *emitter, chunk int) {
	const z, t = 10, 22
	loadChunk(e, 16*chunk, z)
	for i := range 4 {
		codes := z + 8 + i
		if i == 0 {
			markMap.apply(e, zMarkMap, codes, zMark)
		} else {
			markMap.apply(e, zMarkMap, codes, t)
			e.op("VPMAXUB Z%d, Z%d, Z%d", t, zMark, zMark)
		}
		lowMap.apply(e, zLowMap, codes, t+1)
		highMap.apply(e, zHighMap, codes, codes)
		e.list(`
			VPUNPCKLBW Z{codes}, Z{t+1}, Z{t+2}
			VPUNPCKHBW Z{codes}, Z{t+1}, Z{t+3}`, "codes", codes, "t", t)
		for half := range 2 {
			e.op("VMOVDQU64 Z%d, %d(R8)", t+2+half, chunk*chunkBytes+64*(2*i+half))
		}
	}
	ordinary := e.label("ordinary")
	e.op(`
		VPCMPUB $5, Z%d, Z%d, K3
		KTESTQ K3, K3
		JZ %s
		MOVQ $%d, DX
		CALL anyKeys<>(SB)`, zExtreme, zMark, ordinary, chunk)
	e.at(ordinary)
}

// emitAnyKeys writes the function that widens a chunk in which a code is zero, subnormal or NaN. It preserves all
// registers except DX and vector registers 10 to 25.
func emitAnyKeys(e *emitter) {
	e.raw("")
	e.raw("// The chunk DX of a group of keys with any codes.")
	e.raw("TEXT anyKeys<>(SB), NOSPLIT, $0-0")
	e.op(`
		PUSHQ R13
		PUSHQ R8
		SHLQ $4, DX
		ADDQ DX, R13
		SHLQ $5, DX
		ADDQ DX, R8`)
	loadChunk(e, 0, 10)
	for i := range 4 {
		codes := 18 + i
		for part, name := range []string{"codeHigh", "codeLow"} {
			e.op(`
				VMOVDQA64 Z%d, Z%d
				VMOVDQU64 %s<>(SB), Z13`, codes, 10+part, name)
			e.op("VPERMI2B %s<>+64(SB), Z13, Z%d", name, 10+part)
		}
		e.op(`
			VPTERNLOGD $0xF8, codeSign<>(SB), Z%d, Z10
			VPUNPCKLBW Z10, Z11, Z12
			VPUNPCKHBW Z10, Z11, Z13`, codes)
		for half := range 2 {
			e.op("VMOVDQU64 Z%d, %d(R8)", 12+half, 64*(2*i+half))
		}
	}
	e.op(`
		POPQ R8
		POPQ R13
		RET`)
}

// emitIndexKeys writes the kernel that widens groups of keys.
//
//	AX arguments   R14 places of groups   CX groups left
func emitIndexKeys(e *emitter) {
	e.function("indexKeysamx", "indexPackArgs",
		"widens steps groups of 16 keys, whose addresses are at src, to tiles of pairs at dst.")
	e.op(`
		MOVQ indexPackArgs_src(AX), R14
		MOVQ indexPackArgs_dst(AX), R8
		MOVQ indexPackArgs_steps(AX), CX`)
	ordinaryMaps(e)
	e.loop("loop", "CX", func() {
		e.op("MOVQ (R14), R13")
		for chunk := range keyChunks {
			widenChunk(e, chunk)
		}
		e.op(`
			ADDQ $8, R14
			ADDQ $%d, R8`, groupBytes)
	})
	e.ret()
}
