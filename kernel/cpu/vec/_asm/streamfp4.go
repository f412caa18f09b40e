package main

import "fmt"

// Streaming kernels for e2m1 weights: up to sixteen rows of x by weights that come from memory. A
// block is 64 bytes of a row, 128 columns, which are four steps of the tiles. While a group of 32 rows of
// weights is widened into one half of a small panel, the tiles multiply the other half. Sums are taken in the
// order of the tile kernels.
//
// Up to eight rows of x are one tile, whose sums by 64 rows of weights, a unit, are four tiles. The two groups
// of a unit take turns in the same block, so a tile of x is read from memory once for both. Sixteen
// rows of x are two tiles, and four tiles are their sums by 32 rows only: their unit is one group, and the blocks
// of it take turns.
//
//	AX arguments     R9 row of w        CX stride of w
//	SI x             DI panel           DX bytes between lines of x and of sums
//	R11 scales of a row in this block   BX bits of exponents in four words   R8 four exponents
//	R10 place in the half of the panel that is multiplied
//	R15 bytes between lines of the panel; with sixteen rows, where DX is the same, the sum of the addresses of both
//	halves
//	R12 address to prefetch, R13, R14 one, three strides between the eight prefetch cursors
//	Z29 which exponent goes to each word; see nibbles.go for the others
func (e *emitter) emitStreamsFP4() {
	e.nibbleData()
	lanes := make([]byte, 64)
	for i := range lanes {
		lanes[i] = byte(i/16*2 + i%2)
	}
	e.table("scaleOfLane", lanes)
	for _, rows := range []int{16, 8, 4, 1} {
		(&streamFP4{&stream{emitter: e, rows: rows}}).write()
	}
	e.scalesFP4()
}

// streamFP4 is a kernel for one group of rows of x. It shares the tiles and the prefetching of stream.
type streamFP4 struct{ *stream }

const (
	groupRows   = 32             // of weights that are widened together
	groupStep   = 64 * groupRows // bytes of a step in the panel
	groupHalf   = 4 * groupStep
	laneOfScale = 29
	spreadRows  = 8 // rows whose exponents have a place in memory
)

func (k *streamFP4) write() {
	name := fmt.Sprintf("streamFP4x%d", k.rows)
	k.function(name, "streamArgs",
		fmt.Sprintf("%d rows of x in two parts by groups of 32 rows of e2m1 codes, whole blocks of 128 columns.",
			k.rows))
	k.begin()
	loop, entry, done := k.label("loop"), k.label("entry"), k.label("done")
	k.phase(0, false)
	k.op("JMP %s", entry) // into the loop, past the phase that has something to multiply
	k.at(loop)
	k.phase(0, true)
	k.nextX()
	k.at(entry)
	if k.groups() == 1 {
		k.phase(1, true)
	} else {
		k.op("NEGQ DI")
		k.op("ADDQ R15, DI")
	}
	k.op("ADDQ $64, streamArgs_w(AX)")
	k.op("ADDQ $4, streamArgs_scales(AX)")
	k.op("DECQ streamArgs_left(AX)")
	k.op("JNZ %s", loop)
	k.op("DECQ streamArgs_units(AX)")
	k.op("JZ %s", done)
	k.op(`
		MOVQ streamArgs_nextW(AX), R9
		ADDQ R9, streamArgs_w(AX)
		MOVQ streamArgs_nextScales(AX), R9
		ADDQ R9, streamArgs_scales(AX)`)
	k.unitAhead()
	k.op("JMP %s", loop)
	k.at(done)
	k.steps(0, true, false)
	k.op("MOVQ streamArgs_sums(AX), R9")
	k.storeSums()
	k.emit(tilerelease())
	k.ret()
}

func (k *streamFP4) begin() {
	k.emit(ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ $0x7F807F807F807F80, BX
		MOVQ streamArgs_ldw(AX), CX
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_panel(AX), DI
		MOVQ streamArgs_ahead(AX), R12
		MOVQ streamArgs_ldAhead(AX), R13
		LEAQ (R13)(R13*2), R14`)
	k.op("MOVQ $%d, DX", k.line())
	if k.groups() == 1 {
		k.op("MOVQ $64, R15")
	} else {
		k.op("LEAQ %d(DI)(DI*1), R15", groupHalf)
	}
	k.nibbleTables()
	k.op("VMOVDQU64 scaleOfLane<>(SB), Z%d", laneOfScale)
	k.op("MOVQ streamArgs_sums(AX), R9")
	k.loadSums()
}

// Sums of a unit are four tiles, at R9.
func (k *streamFP4) loadSums() {
	for t := range 4 {
		k.emit(tileload(memory{base: "R9", index: "DX", disp: t * k.tile()}, t))
	}
}

func (k *streamFP4) storeSums() {
	for t := range 4 {
		k.store(t, "R9", 0)
	}
}

// nextX follows a phase that multiplied the last group of a block. If that was a unit's last block, x begins anew,
// and what the tiles hold are the sums of this unit.
func (k *streamFP4) nextX() {
	same := k.label("same")
	k.op("MOVQ streamArgs_left(AX), R9")
	k.op("CMPQ R9, streamArgs_blocks(AX)")
	k.op("JNE %s", same)
	k.op("MOVQ streamArgs_x(AX), SI")
	k.op("MOVQ streamArgs_sums(AX), R9")
	k.storeSums()
	k.op("ADDQ $%d, R9", 4*k.tile())
	k.op("MOVQ R9, streamArgs_sums(AX)")
	k.loadSums()
	k.at(same)
}

// phase fills a group of the block and, meanwhile, multiplies what was filled before. It is a loop over the four
// steps: written out it would be too long for the cache of decoded instructions.
func (k *streamFP4) phase(group int, multiply bool) {
	k.note("group %d", group)
	k.op("MOVQ streamArgs_w(AX), R9")
	k.op("MOVQ streamArgs_scales(AX), R11")
	if group > 0 {
		k.op("ADDQ streamArgs_lower(AX), R9")
		k.op("ADDQ streamArgs_lowerScales(AX), R11")
	}
	k.steps(group, multiply, true)
	k.nextRun()
}

// steps fills, and multiplies what the phase before filled, step by step.
func (k *streamFP4) steps(group int, multiply, fill bool) {
	n := k.groups()
	index, first := "R15", 2*(1-group)
	if n == 2 {
		index, first = "DX", 0
		k.op("MOVQ R15, R10")
		k.op("SUBQ DI, R10")
	} else {
		k.op("LEAQ %d(DI), R10", (1-group)*groupHalf)
		k.op("ADDQ $%d, DI", group*groupHalf)
	}
	k.op("MOVQ $4, streamArgs_steps(AX)")
	k.loop("step", "streamArgs_steps(AX)", func() {
		for i := range 2 {
			if fill {
				k.fill(4 * i)
			}
			if !multiply {
				continue
			}
			if i == 0 {
				for j := range n {
					k.emit(tileload(memory{base: "SI", index: "DX", disp: j * k.tile()}, streamX+j))
				}
			}
			k.emit(tileload(memory{base: "R10", index: index, disp: i * 1024}, streamW+i))
			for j := range n {
				k.emit(tdpbf16ps(streamX+j, streamW+i, first+i*n+j))
			}
		}
		k.op("ADDQ $%d, DI", 8*64)
		k.op("ADDQ $%d, R10", groupStep)
		if multiply {
			k.op("ADDQ $%d, SI", n*k.tile())
		}
	})
	k.op("SUBQ $%d, DI", groupRows*64+group*groupHalf)
	if n == 1 && group == 1 {
		k.op("SUBQ $%d, SI", 4*k.tile()) // the other group has the same columns
	}
}

// fill widens rows first to first+3 of eight, and prefetches. Exponents to subtract are topScale less the scales,
// spread to words by scalar instructions, which do not take the ports of vectors.
func (k *streamFP4) fill(first int) {
	for row := first; row < first+4; row++ {
		z := 8 * (row % 2)
		k.op("VMOVDQU64 (R9), Z%d", z)
		k.op("ADDQ CX, R9")
		k.op("MOVL $%#x, R8", topScale*0x01010101)
		k.op("SUBL (R11), R8")
		k.op("ADDQ streamArgs_ldScale(AX), R11")
		k.op("PDEPQ BX, R8, R8")
		k.op("MOVQ R8, streamArgs_spread+%d(AX)", row*8)
		k.op("VPBROADCASTQ streamArgs_spread+%d(AX), Z%d", row*8, z+6)
		k.op("VPSHUFB Z%d, Z%d, Z%d", laneOfScale, z+6, z+6)
		k.unpackNibbles(z, z+6, z+2)
		for step := range 4 {
			k.op("VMOVDQA64 Z%d, %d(DI)", z+2+step, step*groupStep+64*row)
		}
		k.fetchPlace(row)
	}
}

// scalesFP4 writes the kernel that searches e8m0 scales of rows for those that a streaming kernel cannot subtract,
// outside of leastScale to topScale, and prefetches the scales of rows further on.
//
//	AX arguments   R8 row of scales   R10 rows left   SI cursor   R11 bytes to fetch ahead
//	R12 scales left   K1 those that exist   K3 those that were found
func (e *emitter) scalesFP4() {
	const least, most = 28, 27
	e.function("scalesFP4", "scaleArgs", "nan is set where an e8m0 scale is not for the streaming kernels.")
	e.op(`
		MOVQ scaleArgs_scale(AX), R8
		MOVQ scaleArgs_rows(AX), R10
		MOVQ scaleArgs_ahead(AX), R11
		KXORQ K3, K3, K3`)
	for _, c := range []struct{ value, reg int }{{leastScale, least}, {topScale - leastScale, most}} {
		e.op("MOVL $%d, R12", c.value)
		e.op("VPBROADCASTB R12, Z%d", c.reg)
	}
	e.loop("row", "R10", func() {
		loop, whole := e.label("loop"), e.label("whole")
		e.op(`
			MOVQ R8, SI
			MOVQ scaleArgs_count(AX), R12
			KXNORQ K1, K1, K1`)
		e.at(loop)
		e.op("CMPQ R12, $64")
		e.op("JGE %s", whole)
		e.op(`
			MOVQ $-1, R13
			BZHIQ R12, R13, R13
			KMOVQ R13, K1`)
		e.at(whole)
		e.op(`
			VMOVDQU8.Z (SI), K1, Z0
			PREFETCHT1 (SI)(R11*1)`)
		e.op("VPSUBB Z%d, Z0, Z0", least)
		e.op("VPCMPUB $6, Z%d, Z0, K1, K2", most)
		e.op(`
			KORQ K2, K3, K3
			ADDQ $64, SI
			SUBQ $64, R12`)
		e.op("JGT %s", loop)
		e.op("ADDQ scaleArgs_ldScale(AX), R8")
	})
	e.op("KMOVQ K3, R8")
	e.op("MOVQ R8, scaleArgs_nan(AX)")
	e.ret()
}
