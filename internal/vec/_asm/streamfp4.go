package main

import "fmt"

// Streaming kernels for e2m1 weights: rows of x in two planes of integers (planes.go) by weights that come from
// memory. A block is 64 bytes of a row, 128 columns, which are two steps of the tiles. While a group of 32 rows of
// weights is decoded into one half of a small panel, the tiles multiply the other half. Sums are integers, so that
// their order changes nothing.
//
// A code has four bits, and scales of a row are a window of four powers of two (windows.go): two more bits. A table of
// 64 bytes has twice the value of every code times the four powers, 96 at most. The window of a group of 32 weights,
// 16 bytes, is a byte: the power in bits 4 and 5 and ones below, or zero for a group outside of it, which makes all of
// its codes zero.
//
// Up to eight rows of x are one tile, whose sums by a group, a unit, are two tiles. Sixteen rows of x are two tiles,
// and their sums four. A single row has a kernel without tiles (rowfp4.go).
//
//	AX arguments     R9 row of w        CX stride of w
//	SI x             DI panel           DX bytes between lines of x and of sums
//	R11 windows of a row in this block  R8 stride of windows
//	R10 place in the half of the panel that is multiplied
//	R15 bytes between lines of the panel; with sixteen rows, where DX is the same, three strides of windows
//	R12 address to prefetch, R13, R14 one, three strides between the eight prefetch cursors
//	BX three strides of w
//	Z29 which window goes to each byte, Z30 the bits of a code, Z31 table of values
func emitStreamsFP4(e *emitter) {
	lanes := make([]byte, 64)
	for i := range lanes {
		lanes[i] = byte(i / 16)
	}
	table(e, "windowOfLane", lanes)
	table(e, "findPlaces", placesOfWindows())
	table(e, "nibbleValues", windowTable())
	for _, rows := range []int{16, 8, 4} {
		(&streamFP4{stream: &stream{emitter: e}, rows: rows}).write()
	}
	emitRowFP4(e)
}

// windowTable returns twice the value of every code, times each of the four powers of two of a window.
func windowTable() []byte {
	values := make([]byte, 64)
	for i := range values {
		v := [8]int{0, 1, 2, 3, 4, 6, 8, 12}[i%8] << (i / 16)
		if i%16 > 7 {
			v = -v
		}
		values[i] = byte(v)
	}
	return values
}

// streamFP4 is a kernel for one group of rows of x. It shares the prefetching of stream.
type streamFP4 struct {
	*stream
	rows int
}

const (
	groupRows    = 32             // weight rows that are decoded together
	groupStep    = 64 * groupRows // bytes of a step in the panel
	groupHalf    = 2 * groupStep
	findPlaces   = 27
	findLimit    = 28
	windowLane   = 29
	nibbleBits   = 30
	nibbleValues = 31
	findMost     = nibbleBits
)

// tilesX returns the number of tiles of x.
func (k *streamFP4) tilesX() int { return max(1, k.rows/8) }

// sumTiles returns the number of tiles of a unit's sums.
func (k *streamFP4) sumTiles() int { return 2 * k.tilesX() }

// line returns the number of bytes of a line of x or of sums, tile the bytes of a tile.
func (k *streamFP4) line() int { return 8 * k.rows / k.tilesX() }
func (k *streamFP4) tile() int { return 16 * k.line() }

func (k *streamFP4) write() {
	k.function(fmt.Sprintf("streamFP4x%d", k.rows), "streamArgs",
		fmt.Sprintf("%d rows of x in two planes by groups of 32 rows of e2m1 codes, whole blocks of 128 columns.",
			k.rows))
	k.begin()
	loop, entry, done := k.label("loop"), k.label("entry"), k.label("done")
	k.phase(false)
	k.op("JMP %s", entry) // the first phase has only filled, as there was nothing to multiply yet
	k.at(loop)
	k.phase(true)
	k.nextX()
	k.at(entry)
	k.op(`
		NEGQ DI
		ADDQ streamArgs_halves(AX), DI
		ADDQ $64, streamArgs_w(AX)
		ADDQ $4, streamArgs_scales(AX)
		DECQ streamArgs_left(AX)
		JNZ %s
		DECQ streamArgs_units(AX)
		JZ %s
		MOVQ streamArgs_nextW(AX), R9
		ADDQ R9, streamArgs_w(AX)
		MOVQ streamArgs_nextScales(AX), R9
		ADDQ R9, streamArgs_scales(AX)`, loop, done)
	k.unitAhead()
	k.op("JMP %s", loop)
	k.at(done)
	k.steps(true, false)
	k.op("MOVQ streamArgs_sums(AX), R9")
	k.storeSums()
	emit(k.stream.emitter, tilerelease())
	k.ret()
}

func (k *streamFP4) begin() {
	emit(k.stream.emitter, ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ streamArgs_ldw(AX), CX
		MOVQ streamArgs_ldScale(AX), R8
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_panel(AX), DI
		MOVQ streamArgs_ahead(AX), R12
		MOVQ streamArgs_ldAhead(AX), R13
		LEAQ (CX)(CX*2), BX
		LEAQ (R13)(R13*2), R14
		MOVQ $%d, DX
		LEAQ %d(DI)(DI*1), R15
		MOVQ R15, streamArgs_halves(AX)`, k.line(), groupHalf)
	if k.tilesX() == 1 {
		k.op("MOVQ $64, R15")
	} else {
		k.op("LEAQ (R8)(R8*2), R15")
	}
	k.op(`
		VMOVDQU64 windowOfLane<>(SB), Z%d
		VMOVDQU64 nibbleValues<>(SB), Z%d
		VMOVDQU64 findPlaces<>(SB), Z%d`, windowLane, nibbleValues, findPlaces)
	for _, c := range []struct{ value, reg int }{{15, nibbleBits}, {3, findLimit}} {
		k.op(`
			MOVL $%d, R9
			VPBROADCASTB R9, Z%d`, c.value, c.reg)
	}
	k.clearSums()
}

func (k *streamFP4) clearSums() {
	for t := range k.sumTiles() {
		emit(k.stream.emitter, tilezero(t))
	}
}

// storeSums writes the sums of a unit to R9.
func (k *streamFP4) storeSums() {
	for t := range k.sumTiles() {
		emit(k.stream.emitter, tilestore(t, memory{base: "R9", index: "DX", disp: t * k.tile()}))
	}
}

// nextX follows a phase that has multiplied a block. After the last block of a unit, it returns to the beginning of x,
// and the tiles hold the sums of this unit.
func (k *streamFP4) nextX() {
	same := k.label("same")
	k.op(`
		MOVQ streamArgs_left(AX), R9
		CMPQ R9, streamArgs_blocks(AX)
		JNE %s
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_sums(AX), R9`, same)
	k.storeSums()
	k.clearSums()
	k.op("ADDQ $%d, streamArgs_sums(AX)", k.sumTiles()*k.tile())
	k.at(same)
}

// phase fills a block of a group while it multiplies the previously filled block.
func (k *streamFP4) phase(multiply bool) {
	k.op(`
		MOVQ streamArgs_w(AX), R9
		MOVQ streamArgs_scales(AX), R11`)
	k.steps(multiply, true)
	nextRun(k.stream.emitter)
	k.op("MOVQ streamArgs_aheadScales(AX), R9") // a line of scales belongs to sixteen lines of weights
	k.op(`
		PREFETCHT1 (R9)
		PREFETCHT1 64(R9)
		ADDQ $128, streamArgs_aheadScales(AX)`)
	k.nextWindows()
}

// nextWindows finds the windows of a part of the next unit's rows, such that all phases together find those of a whole
// unit. If the windows of all rows of a call were found at its beginning, no weights would be fetched in that time.
//
//	R9 scales, scratch   R10 windows, scratch   R11 registers left   Z16 largest scales   Z17 to Z20 scratch
//	K1 scales of the last register
//
// The instruction for the minimum of eight words, by which windows.go finds the largest scale, does not support
// registers from 16 on.
func (k *streamFP4) nextWindows() {
	const top, t, distance, place = 16, 17, 18, 19
	done, row := k.label("found"), k.label("find")
	k.op(`
		MOVQ streamArgs_findEach(AX), R11
		MOVQ R11, streamArgs_steps(AX)`)
	k.at(row)
	k.op(`
		CMPQ streamArgs_findLeft(AX), $0
		JEQ %s`, done)
	// Calls body for whole registers of scales, and for the last one.
	each := func(body func(last bool)) {
		more, last := k.label("more"), k.label("last")
		k.op(`
			MOVQ streamArgs_findScales(AX), R9
			MOVQ streamArgs_findRegisters(AX), R11
			TESTQ R11, R11
			JZ %s`, last)
		k.at(more)
		body(false)
		k.op(`
			ADDQ $64, R9
			DECQ R11
			JNZ %s`, more)
		k.at(last)
		body(true)
	}
	k.op(`
		KMOVQ streamArgs_findMask(AX), K1
		VPXORD Z%d, Z%d, Z%d`, top, top, top)
	each(func(last bool) {
		if last {
			k.list(`
				VMOVDQU8.Z (R9), K1, Z{t}
				VPMAXUB Z{t}, Z{top}, Z{top}`, "t", t, "top", top)
		} else {
			k.op("VPMAXUB (R9), Z%d, Z%d", top, top)
		}
	})
	k.op(`
		VEXTRACTI64X4 $1, Z16, Y17
		VPMAXUB Y17, Y16, Y16
		VEXTRACTI32X4 $1, Y16, X17
		VPMAXUB X17, X16, X16
		VPSHUFD $0x4E, X16, X17
		VPMAXUB X17, X16, X16
		VPSHUFD $0xB1, X16, X17
		VPMAXUB X17, X16, X16
		VPSRLD $16, X16, X17
		VPMAXUB X17, X16, X16
		VPSRLW $8, X16, X17
		VPMAXUB X17, X16, X16
		VMOVD X16, R9
		MOVBLZX R9, R9
		VPBROADCASTB R9, Z16
		MOVQ streamArgs_findTable(AX), R10
		MOVL (R10)(R9*4), R9
		MOVQ streamArgs_findExponents(AX), R10
		MOVL R9, (R10)
		MOVQ streamArgs_findWindows(AX), R10
		VPXORD Z20, Z20, Z20`)
	each(func(last bool) {
		if last {
			k.op("VMOVDQU8.Z (R9), K1, Z%d", t)
			k.op("VPSUBB.Z Z%d, Z%d, K1, Z%d", t, top, distance)
		} else {
			k.op("VPSUBB (R9), Z%d, Z%d", top, distance)
		}
		k.op("VPMINUB Z%d, Z%d, Z%d", findMost, distance, place)
		k.op("VPSHUFB Z%d, Z%d, Z%d", place, findPlaces, place)
		k.op("VPMAXUB Z%d, Z20, Z20", distance)
		if last {
			k.op("VMOVDQU8 Z%d, K1, (R10)", place)
		} else {
			k.op(`
				VMOVDQU64 Z%d, (R10)
				ADDQ $64, R10`, place)
		}
	})
	k.op(`
		VPCMPUB $6, Z%d, Z20, K2
		MOVQ streamArgs_findBelow(AX), R10
		KORTESTQ K2, K2
		SETNE (R10)
		INCQ streamArgs_findBelow(AX)
		ADDQ $4, streamArgs_findExponents(AX)
		MOVQ streamArgs_findLd(AX), R9
		ADDQ R9, streamArgs_findScales(AX)
		MOVQ streamArgs_ldScale(AX), R9
		ADDQ R9, streamArgs_findWindows(AX)
		DECQ streamArgs_findLeft(AX)
		DECQ streamArgs_steps(AX)
		JNZ %s`, findLimit, row)
	k.at(done)
}

// steps runs twice: it fills half of the rows and multiplies one step of the block that the previous phase filled.
func (k *streamFP4) steps(multiply, fill bool) {
	n, index := k.tilesX(), "R15"
	if n > 1 {
		index = "DX"
	}
	k.op(`
		MOVQ streamArgs_halves(AX), R10
		SUBQ DI, R10`)
	loadW := func(i int) {
		emit(k.stream.emitter, tileload(memory{base: "R10", index: index, disp: i * 1024}, streamW+i))
	}
	loadX := func(j int) {
		m := memory{base: "SI", index: "DX", disp: j * k.tile()}
		if n == 2 { // hint as in stream.go
			emit(k.stream.emitter, tileloadOnce(m, streamX+j))
		} else {
			emit(k.stream.emitter, tileload(m, streamX+j))
		}
	}
	product := func(i, j int) { emit(k.stream.emitter, tdpbssd(streamX+j, streamW+i, i*n+j)) }
	at := map[int]func(){ // tile instructions that precede the decoding of each row
		0:  func() { loadX(0); loadW(0) },
		4:  func() { product(0, 0); loadW(1) },
		12: func() { product(1, 0) },
	}
	if n == 2 {
		at = map[int]func(){
			0:  func() { loadW(0) },
			2:  func() { loadX(0) },
			4:  func() { product(0, 0) },
			6:  func() { loadX(1) },
			8:  func() { product(0, 1) },
			10: func() { loadW(1) },
			12: func() { product(1, 0) },
			14: func() { product(1, 1) },
		}
	}
	k.op("MOVQ $2, streamArgs_steps(AX)")
	k.loop("step", "streamArgs_steps(AX)", func() {
		for row := range groupRows / 2 {
			if issue := at[row]; multiply && issue != nil {
				issue()
			}
			if fill {
				k.fill(row)
			}
		}
		k.op(`
			ADDQ $%d, DI
			ADDQ $%d, R10`, groupRows/2*64, groupStep)
		if multiply {
			k.op("ADDQ $%d, SI", n*k.tile())
		}
	})
	k.op("SUBQ $%d, DI", groupRows*64)
}

// fill decodes 64 bytes of a row, and prefetches later bytes.
func (k *streamFP4) fill(row int) {
	even := 4 * (row % 4)
	odd, window := even+1, even+2
	k.op("VMOVDQU64 %s, Z%d", spaced("R9", "CX", "BX", "", 0, row%4), even)
	if row%4 == 3 {
		k.op("LEAQ (R9)(CX*4), R9")
	}
	together := 2 // rows of windows that are addressed from one register
	if k.tilesX() > 1 {
		together = 4
	}
	decodeNibbles(k.stream.emitter, spaced("R11", "R8", "R15", "", 0, row%together), even, odd, window)
	if row%together == together-1 {
		k.op("LEAQ (R11)(R8*%d), R11", together)
	}
	for step, z := range []int{even, odd} {
		k.op("VMOVDQA64 Z%d, %d(DI)", z, step*groupStep+64*row)
	}
	k.fetchPlace(row)
}

// decodeNibbles decodes the 64 bytes in register even, whose four windows are in memory: even elements to register
// even, odd ones to register odd.
func decodeNibbles(e *emitter, windows string, even, odd, window int) {
	e.op("VPERMB %s, Z%d, Z%d", windows, windowLane, window)
	e.op("VPSRLW $4, Z%d, Z%d", even, odd)
	for _, z := range []int{even, odd} {
		e.op("VPTERNLOGD $0xA2, Z%d, Z%d, Z%d", window, nibbleBits, z) // bits of a code ? z & window : window
		e.op("VPERMB Z%d, Z%d, Z%d", nibbleValues, z, z)
	}
}
