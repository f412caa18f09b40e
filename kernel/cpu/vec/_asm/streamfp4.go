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
//	AX arguments     BX column of w     CX, R10 one, three strides of w   R9 rows of w
//	SI x             DI panel           DX bytes between lines of x and of sums
//	R8 sums          R11 exponents of scales
//	R15 bytes between lines of the panel; with sixteen rows, where DX is the same, the half that is multiplied
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
	groupRows    = 32             // of weights that are widened together
	groupStep    = 64 * groupRows // bytes of a step in the panel
	groupHalf    = 4 * groupStep
	laneOfScale  = 29
	exponentLine = 64*8 + 64         // bytes between the exponents of two rows; the Go side has the same
	unitLines    = 64 * exponentLine // bytes between those of two units, of at most 64 rows
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
		k.op("XCHGQ DI, R15")
	}
	k.op("ADDQ $64, BX")
	k.op("ADDQ $8, R11")
	k.op("DECQ streamArgs_left(AX)")
	k.op("JNZ %s", loop)
	k.op("DECQ streamArgs_units(AX)")
	k.op("JZ %s", done)
	k.op("MOVQ $%d, R11", unitLines)
	k.op("ADDQ streamArgs_scales(AX), R11")
	k.op("MOVQ R11, streamArgs_scales(AX)")
	k.nextUnit()
	k.op("JMP %s", loop)
	k.at(done)
	k.multiply(0, func(int) {})
	k.storeSums()
	k.emit(tilerelease())
	k.ret()
}

func (k *streamFP4) begin() {
	k.emit(ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ streamArgs_w(AX), BX
		MOVQ streamArgs_ldw(AX), CX
		LEAQ (CX)(CX*2), R10
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_panel(AX), DI
		MOVQ streamArgs_sums(AX), R8
		MOVQ streamArgs_scales(AX), R11
		MOVQ streamArgs_ahead(AX), R12
		MOVQ streamArgs_ldAhead(AX), R13
		LEAQ (R13)(R13*2), R14`)
	k.op("MOVQ $%d, DX", k.line())
	if k.groups() == 1 {
		k.op("MOVQ $64, R15")
	} else {
		k.op("LEAQ %d(DI), R15", groupHalf)
	}
	k.nibbleTables()
	k.op("VMOVDQU64 scaleOfLane<>(SB), Z%d", laneOfScale)
	k.loadSums()
}

// Sums of a unit are four tiles.
func (k *streamFP4) loadSums() {
	for t := range 4 {
		k.emit(tileload(memory{base: "R8", index: "DX", disp: t * k.tile()}, t))
	}
}

func (k *streamFP4) storeSums() {
	for t := range 4 {
		k.store(t, "R8", 0)
	}
}

// nextX moves on to the columns of x that belong to the block that is filled. Those of a unit's first are the
// first, and what the tiles hold are then the sums of the unit before.
func (k *streamFP4) nextX() {
	same := k.label("same")
	k.op("ADDQ $%d, SI", 4*k.groups()*k.tile())
	k.op("MOVQ streamArgs_left(AX), R9")
	k.op("CMPQ R9, streamArgs_blocks(AX)")
	k.op("JNE %s", same)
	k.op("MOVQ streamArgs_x(AX), SI")
	k.storeSums()
	k.op("ADDQ $%d, R8", 4*k.tile())
	k.loadSums()
	k.at(same)
}

// phase fills a group of the block and, meanwhile, multiplies what was filled before.
func (k *streamFP4) phase(group int, multiply bool) {
	k.note("group %d", group)
	k.op("MOVQ BX, R9")
	if group > 0 {
		k.op("ADDQ streamArgs_lower(AX), R9")
	}
	between := func(q int) {
		k.fill(group, q)
		for r := 4 * q; r < 4*q+4; r++ {
			k.fetchPlace(r)
		}
		k.op("LEAQ (R9)(CX*4), R9")
		if q%8 == 7 {
			k.nextRun()
		}
	}
	if !multiply {
		for q := range groupRows / 4 {
			between(q)
		}
		return
	}
	k.multiply(group, between)
}

// fill widens rows 4q to 4q+3 of a group.
func (k *streamFP4) fill(group, q int) {
	half := 0
	if k.groups() == 1 {
		half = group * groupHalf
	}
	for i := range 4 {
		row, z := 4*q+i, 8*(i%2)
		k.op("VMOVDQU64 %s, Z%d", spaced("R9", "CX", "R10", "", 0, i), z)
		k.op("VPBROADCASTQ %d(R11), Z%d", (group*groupRows+row)*exponentLine, z+6)
		k.op("VPSHUFB Z%d, Z%d, Z%d", laneOfScale, z+6, z+6)
		k.unpackNibbles(z, z+6, z+2)
		for step := range 4 {
			k.op("VMOVDQA64 Z%d, %d(DI)", z+2+step, half+step*groupStep+64*row)
		}
	}
}

// multiply multiplies what the phase before that of a group filled: four steps of two tiles of weights by those
// of x. It calls between for each four rows of a group.
func (k *streamFP4) multiply(group int, between func(q int)) {
	n := k.groups()
	panel, half, index, first := "DI", (1-group)*groupHalf, "R15", 2*(1-group)
	if n == 2 {
		panel, half, index, first = "R15", 0, "DX", 0
	}
	for q := range groupRows / 4 {
		step, i := q/2, q%2
		between(q)
		if i == 0 {
			for j := range n {
				k.emit(tileload(memory{base: "SI", index: "DX", disp: (step*n + j) * k.tile()}, k.tileX(step%2, j)))
			}
		}
		k.emit(tileload(memory{base: panel, index: index, disp: half + step*groupStep + i*1024}, streamW+i))
		for j := range n {
			k.emit(tdpbf16ps(k.tileX(step%2, j), streamW+i, first+i*n+j))
		}
	}
}

// scalesFP4 writes the kernel that turns e8m0 scales of rows into exponents that a streaming kernel subtracts,
// and prefetches the scales of rows further on. nan is set where a scale is outside of leastScale to topScale.
//
//	AX arguments   R8 row of scales   R9 its exponents   R10 rows left   SI, DI cursors in both
//	R11 bytes to fetch ahead          R12 scales left    K3 scales out of range
func (e *emitter) scalesFP4() {
	const top, least, range_ = 29, 28, 27
	e.function("scalesFP4", "scaleArgs", "exponents of e8m0 scales for the streaming kernels.")
	e.op(`
		MOVQ scaleArgs_scale(AX), R8
		MOVQ scaleArgs_exponents(AX), R9
		MOVQ scaleArgs_rows(AX), R10
		MOVQ scaleArgs_ahead(AX), R11
		KXORD K3, K3, K3`)
	for _, c := range []struct{ value, reg int }{{topScale, top}, {leastScale, least}, {topScale - leastScale, range_}} {
		e.op("MOVL $%d, R12", c.value)
		e.op("VPBROADCASTW R12, Z%d", c.reg)
	}
	e.loop("row", "R10", func() {
		loop, whole := e.label("loop"), e.label("whole")
		e.op(`
			MOVQ R8, SI
			MOVQ R9, DI
			MOVQ scaleArgs_count(AX), R12
			KXNORD K1, K1, K1`)
		e.at(loop)
		e.op("CMPQ R12, $32")
		e.op("JGE %s", whole)
		e.op(`
			MOVQ $-1, R13
			BZHIL R12, R13, R13
			KMOVD R13, K1`)
		e.at(whole)
		e.op(`
			VMOVDQU8.Z (SI), K1, Y0
			PREFETCHT1 (SI)(R11*1)
			VPMOVZXBW Y0, Z0`)
		e.op("VPSUBW Z%d, Z0, Z1", least)
		e.op("VPCMPUW $6, Z%d, Z1, K1, K2", range_)
		e.op("KORD K2, K3, K3")
		e.op("VPSUBW Z0, Z%d, Z0", top)
		e.op("VPSLLW $7, Z0, Z0")
		e.op("VMOVDQU16 Z0, K1, (DI)")
		e.op(`
			ADDQ $32, SI
			ADDQ $64, DI
			SUBQ $32, R12`)
		e.op("JGT %s", loop)
		e.op("ADDQ scaleArgs_ldScale(AX), R8")
		e.op("ADDQ $%d, R9", exponentLine)
	})
	e.op("KMOVD K3, R8")
	e.op("MOVQ R8, scaleArgs_nan(AX)")
	e.ret()
}
