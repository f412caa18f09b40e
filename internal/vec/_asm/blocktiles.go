package main

import "fmt"

// emitBlockFill writes the kernel that unpacks sixteen rows of weights into a panel for the tiles, with their scales.
//
//	blocks of 32:   panel [pairs][16][64] int8; scales [2 pairs][16] float32
//	blocks of 256:  panel [quarters][upper, lower][16][64] int8; scales [blocks][d, dmin][16] float32;
//	                mins [blocks][16][4][8] bfloat16, the same eight four times
//
// A value of Q4_K or Q6_K times its integer scale has two parts of eight bits: the upper one counts 2^3 or 2^7.
//
//	DI panel   SI scales   CX minimums   Z17 offsets of the rows
func emitBlockFill(e *emitter, f blockFormat) {
	e.function("blockFill"+f.name, "blockArgs", fmt.Sprintf("unpacks sixteen rows of %s.", f.name))
	blockStart(e)
	blockConstants(e, f, false)
	switch f {
	case q4k:
		e.op(`
			VMOVDQU64 blockMinBF16<>(SB), Z18
			VMOVDQU64 blockMinBF16<>+64(SB), Z19
			VMOVDQU64 blockMinsOver<>(SB), Z20
			VPBROADCASTD blockSeven<>(SB), Z21`)
	case q6k:
		e.op(`
			VPBROADCASTD blockLowByte<>(SB), Z18
			VPBROADCASTD blockLow7<>(SB), Z19`)
	}
	e.op(`
		MOVQ blockArgs_panel(AX), DI
		MOVQ blockArgs_scales(AX), SI
		MOVQ blockArgs_sums(AX), CX
		VMOVDQU32 blockArgs_offsets(AX), Z17`)
	loop, more := e.label("loop"), e.label("more")
	e.at(loop)
	if f.small() {
		e.op(`
			CMPQ blockArgs_steps(AX), $1
			JNE %s
			MOVQ blockArgs_last(AX), DX`, more)
		e.at(more)
	}
	for r := range 16 {
		blockRow(e, f, r)
		switch {
		case f.small():
			unpackPair(e, f, r%4, false)
			e.op("VMOVDQU64 Z%d, %d(DI)", r%4, 64*r)
		case f == q4k:
			fill4K(e, r)
		default:
			fill6K(e, r)
		}
	}
	e.op(`
		MOVQ blockArgs_rows(AX), R9
		ADDQ BX, R9`)
	gatherScales(e, f, false, 0, 2, 17)
	e.op("VMOVUPS Z0, (SI)")
	if f.small() {
		gatherScales(e, f, true, 0, 2, 17)
		e.op(`
			VMOVUPS Z0, 64(SI)
			ADDQ $1024, DI`)
	} else {
		if f == q4k {
			e.op(`
				VMOVUPS Z2, 64(SI)
				ADDQ $1024, CX`)
		}
		e.op("ADDQ $8192, DI")
	}
	e.op(`
		ADDQ $128, SI
		ADDQ $%d, BX
		DECQ blockArgs_steps(AX)
		JNZ %s`, f.stepBytes(), loop)
	e.ret()
}

// fill4K unpacks a block of row r. A scale is 8 times its upper three bits plus its lower three bits. The product of
// either part and a value has at most seven bits, so that words can multiply two values at once.
func fill4K(e *emitter, r int) {
	scalesOf(e, q4k, 0)
	e.op(`
		VPSRLW $3, Y0, Y1
		VPANDD Y21, Y0, Y2`)
	quarters(e, q4k, 3, func(q, z int) {
		for part := range 2 {
			e.op("VPERMW Z%d, Z%d, Z%d", 1+part, bkPerm+q, 9+part)
			e.op("VPMULLW Z%d, Z%d, Z%d", 9+part, z, 9+part)
			e.op("VMOVDQU64 Z%d, %d(DI)", 9+part, 2048*q+1024*part+64*r)
		}
	})
	e.op(`
		VPERMW Z0, Z20, Z0
		VPERMI2W Z19, Z18, Z0
		VMOVDQU64 Z0, %d(CX)`, 64*r)
}

// fill6K unpacks a block of row r: it computes the products of even and of odd values, separates their lower seven bits
// from the upper bits, and interleaves even and odd.
func fill6K(e *emitter, r int) {
	const low, low7 = 18, 19
	scalesOf(e, q6k, 0)
	quarters(e, q6k, 2, func(q, z int) {
		e.op(`
			VPERMW Z0, Z%d, Z8
			VPSLLW $5, Z8, Z9`, bkPerm+q) // values are raised by 32
		e.op(`
			VPANDD Z%d, Z%d, Z10
			VPSRLW $8, Z%d, Z11`, low, z, z)
		for _, w := range []int{10, 11} {
			e.list(`
				VPMULLW Z8, Z{w}, Z{w}
				VPSUBW Z9, Z{w}, Z{w}`, "w", w)
		}
		e.op(`
			VPSRAW $7, Z10, Z12
			VPSLLW $1, Z11, Z13
			VPTERNLOGD $0xD8, Z%d, Z12, Z13
			VMOVDQU64 Z13, %d(DI)
			VPSLLW $8, Z11, Z11
			VPTERNLOGD $0xD8, Z%d, Z10, Z11
			VPANDD Z%d, Z11, Z11`, low, 2048*q+64*r, low, low7)
		e.op("VMOVDQU64 Z11, %d(DI)", 2048*q+1024+64*r)
	})
}

// blockTiles are kernels that multiply a panel of sixteen rows of weights by units of sixteen rows of x. Tiles hold the
// integer sums of a step; while they compute those of one step, the sums of the step before are scaled and added to
// sixteen registers, one for each row of weights.
//
//	SI codes of x   DX panel   R9 scales of x   R10 scales of weights   R13 minimums   R14 parts of x
//	DI, R8 sums of this step, of the one before   CX steps left   R11 64   R12 results   BX units left
//	R15 lines to prefetch
//	Z16 ... Z31 results   Z0 scales of x
type blockTiles struct {
	*emitter
	name  string
	parts int         // parts of a step
	lines int         // lines of weights that a part prefetches
	issue func(i int) // writes the tile instructions of part i
	scale func(i int, from string)
}

func (k *blockTiles) write(doc string) {
	k.function(k.name, "blockTileArgs", doc)
	emit(k.emitter, ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ blockTileArgs_units(AX), BX
		MOVQ blockTileArgs_results(AX), R12
		MOVQ blockTileArgs_soon(AX), R15
		MOVQ $64, R11`)
	unit, fresh, begin := k.label("unit"), k.label("fresh"), k.label("begin")
	loop, last := k.label("loop"), k.label("last")
	k.at(unit)
	k.op(`
		MOVQ blockTileArgs_x(AX), SI
		MOVQ blockTileArgs_panel(AX), DX
		MOVQ blockTileArgs_scalesX(AX), R9
		MOVQ blockTileArgs_scales(AX), R10
		MOVQ blockTileArgs_mins(AX), R13
		MOVQ blockTileArgs_parts(AX), R14
		MOVQ blockTileArgs_sums(AX), DI
		MOVQ DI, R8
		ADDQ $4096, R8
		MOVQ blockTileArgs_steps(AX), CX
		ADDQ blockTileArgs_offsetX(AX), SI
		ADDQ blockTileArgs_offsetX(AX), R9
		ADDQ blockTileArgs_offsetX(AX), R14
		CMPQ blockTileArgs_fresh(AX), $0
		JNE %s`, fresh)
	for r := range 16 {
		k.op("VMOVUPS %d(R12), Z%d", 64*r, 16+r)
	}
	k.op("JMP %s", begin)
	k.at(fresh)
	for r := range 16 {
		k.zero(16 + r)
	}
	k.at(begin)
	for i := range k.parts {
		k.issue(i)
	}
	k.at(loop)
	k.op(`
		DECQ CX
		JZ %s
		XCHGQ DI, R8`, last)
	for i := range k.parts {
		k.issue(i)
		k.fetch()
		k.scale(i, "R8")
	}
	k.op("JMP %s", loop)
	k.at(last)
	for i := range k.parts {
		k.fetch()
		k.scale(i, "DI")
	}
	for r := range 16 {
		k.op("VMOVUPS Z%d, %d(R12)", 16+r, 64*r)
	}
	k.op(`
		MOVQ blockTileArgs_unitX(AX), R9
		ADDQ R9, blockTileArgs_offsetX(AX)
		MOVQ blockTileArgs_panel(AX), R15
		ADDQ $1024, R12
		DECQ BX
		JNZ %s`, unit)
	emit(k.emitter, tilerelease())
	k.ret()
}

// fetch prefetches lines into the L2 cache: lines of the next weights in the first unit, and lines of the panel in the
// other units.
func (k *blockTiles) fetch() {
	for i := range k.lines {
		k.op("PREFETCHT1 %d(R15)", 64*i)
	}
	k.op("ADDQ $%d, R15", 64*k.lines)
}

// linesOf returns the number of lines of sixteen rows that one part of a step prefetches.
func (f blockFormat) linesOf(parts int) int { return (16*f.stepBytes() + 64*parts - 1) / (64 * parts) }

func emitTilesOf32(e *emitter) {
	const a, b = 2, 4 // first of two tiles of weights, and of x
	k := &blockTiles{emitter: e, name: "blockTiles32", parts: 2, lines: q80.linesOf(2)}
	k.issue = func(i int) {
		emit(e, tileload(memory{base: "DX", index: "R11", disp: 32 * i}, a+i))
		emit(e, tileload(memory{base: "SI", index: "R11", disp: 512 * i}, b+i))
		emit(e, tilezero(i))
		emit(e, tdpbssd(b+i, a+i, i))
		emit(e, tilestore(i, memory{base: "DI", index: "R11", disp: 1024 * i}))
		if i == 1 {
			e.op(`
				ADDQ $1024, DX
				ADDQ $1024, SI`)
		}
	}
	k.scale = func(i int, from string) {
		e.op("VMOVUPS %d(R9), Z0", 64*i)
		for r := range 16 {
			t, p := 1+r%7, 8+r%8
			e.op("VCVTDQ2PS %d(%s), Z%d", 1024*i+64*r, from, t)
			e.op("VMULPS.BCST %d(R10), Z0, Z%d", 64*i+4*r, p)
			e.op("VFMADD231PS Z%d, Z%d, Z%d", t, p, 16+r)
		}
		if i == 1 {
			e.op(`
				ADDQ $128, R9
				ADDQ $128, R10`)
		}
	}
	k.write("units of x by a panel of pairs of blocks of 32.")
}

func emitTilesOf256(e *emitter, f blockFormat) {
	const upper, lower, x, mins, parts = 3, 4, 5, 6, 7
	k := &blockTiles{emitter: e, name: "blockTiles" + f.name, parts: 4, lines: f.linesOf(4)}
	k.issue = func(q int) {
		if q == 0 {
			emit(e, tilezero(0))
			emit(e, tilezero(1))
		}
		emit(e, tileload(memory{base: "SI", index: "R11", disp: 1024 * q}, x))
		emit(e, tileload(memory{base: "DX", index: "R11", disp: 2048 * q}, upper))
		emit(e, tdpbssd(x, upper, 0))
		emit(e, tileload(memory{base: "DX", index: "R11", disp: 2048*q + 1024}, lower))
		emit(e, tdpbssd(x, lower, 1))
		if q < 3 {
			return
		}
		if f == q4k {
			emit(e, tileload(memory{base: "R13", index: "R11"}, mins))
			emit(e, tileload(memory{base: "R14", index: "R11"}, parts))
			emit(e, tilezero(2))
			emit(e, tdpbf16ps(parts, mins, 2))
			e.op(`
				ADDQ $1024, R13
				ADDQ $512, R14`)
		}
		for t := range 3 {
			if t < 2 || f == q4k {
				emit(e, tilestore(t, memory{base: "DI", index: "R11", disp: 1024 * t}))
			}
		}
		e.op(`
			ADDQ $8192, DX
			ADDQ $4096, SI`)
	}
	k.scale = func(q int, from string) {
		shift := 3
		if f == q6k {
			shift = 7
		}
		e.op("VMOVUPS (R9), Z0")
		for r := 4 * q; r < 4*q+4; r++ {
			t, p := 1+r%7, 8+r%8
			e.op("VPSLLD $%d, %d(%s), Z%d", shift, 64*r, from, t)
			e.op("VPADDD %d(%s), Z%d, Z%d", 1024+64*r, from, t, t)
			e.op("VCVTDQ2PS Z%d, Z%d", t, t)
			if f == q4k {
				e.op("VMOVUPS %d(%s), Z%d", 2048+64*r, from, p)
				e.op("VMULPS.BCST %d(R10), Z%d, Z%d", 64+4*r, p, p)
				e.op("VFMSUB132PS.BCST %d(R10), Z%d, Z%d", 4*r, p, t)
			} else {
				e.op("VMULPS.BCST %d(R10), Z%d, Z%d", 4*r, t, t)
			}
			e.op("VFMADD231PS Z%d, Z0, Z%d", t, 16+r)
		}
		if q == 3 {
			e.op(`
				ADDQ $64, R9
				ADDQ $128, R10`)
		}
	}
	k.write(fmt.Sprintf("units of x by a panel of blocks of %s.", f.name))
}

// tdpbssd adds a·b to acc: a [rows, 4k] int8, b [k, cols] of four int8.
func tdpbssd(b, a, acc int) instruction {
	return instruction{fmt.Sprintf("tdpbssd %%tmm%d,%%tmm%d,%%tmm%d", b, a, acc),
		append(vex(ppF2, b, 0, 0, 0), 0x5E, byte(0xC0|acc<<3|a))}
}
