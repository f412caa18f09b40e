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
// Up to eight rows of x are one tile, whose sums by 64 rows of weights, a unit, are four tiles. The two groups of a
// unit take turns in the same block. Sixteen rows of x are two tiles, and four tiles are their sums by 32 rows: their
// unit is one group, and the blocks of it take turns.
//
//	AX arguments     R9 row of w        CX stride of w
//	SI x             DI panel           DX bytes between lines of x and of sums
//	R11 windows of a row in this block  R8 stride of windows
//	R10 place in the half of the panel that is multiplied
//	R15 bytes between lines of the panel; with sixteen rows, where DX is the same, the sum of the addresses of both
//	halves
//	R12 address to prefetch, R13, R14 one, three strides between the eight prefetch cursors
//	BX scales to prefetch
//	Z29 which window goes to each byte, Z30 the bits of a code, Z31 table of values
func (e *emitter) emitStreamsFP4() {
	lanes := make([]byte, 64)
	for i := range lanes {
		lanes[i] = byte(i / 16)
	}
	e.table("windowOfLane", lanes)
	e.table("nibbleValues", windowTable())
	for _, rows := range []int{16, 8, 4} {
		(&streamFP4{stream: &stream{emitter: e}, rows: rows}).write()
	}
	e.emitRowFP4()
}

// windowTable is twice the value of every code times the four powers of a window.
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
	groupRows    = 32             // of weights that are decoded together
	groupStep    = 64 * groupRows // bytes of a step in the panel
	groupHalf    = 2 * groupStep
	sumsFP4      = 4 // tiles of a unit's sums
	windowLane   = 29
	nibbleBits   = 30
	nibbleValues = 31
)

// tilesX is the tiles of x.
func (k *streamFP4) tilesX() int { return max(1, k.rows/8) }

// line is the bytes of a line of x or of sums, tile those of a tile.
func (k *streamFP4) line() int { return 8 * k.rows / k.tilesX() }
func (k *streamFP4) tile() int { return 16 * k.line() }

func (k *streamFP4) write() {
	k.function(fmt.Sprintf("streamFP4x%d", k.rows), "streamArgs",
		fmt.Sprintf("%d rows of x in two planes by groups of 32 rows of e2m1 codes, whole blocks of 128 columns.",
			k.rows))
	k.begin()
	loop, entry, done := k.label("loop"), k.label("entry"), k.label("done")
	k.phase(0, false)
	k.op("JMP %s", entry) // into the loop, past the phase that has something to multiply
	k.at(loop)
	k.phase(0, true)
	k.nextX()
	k.at(entry)
	if k.tilesX() == 1 {
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
		MOVQ streamArgs_ldw(AX), CX
		MOVQ streamArgs_ldScale(AX), R8
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_panel(AX), DI
		MOVQ streamArgs_ahead(AX), R12
		MOVQ streamArgs_ldAhead(AX), R13
		MOVQ streamArgs_aheadScales(AX), BX
		LEAQ (R13)(R13*2), R14`)
	k.op("MOVQ $%d, DX", k.line())
	if k.tilesX() == 1 {
		k.op("MOVQ $64, R15")
	} else {
		k.op("LEAQ %d(DI)(DI*1), R15", groupHalf)
	}
	k.op("VMOVDQU64 windowOfLane<>(SB), Z%d", windowLane)
	k.op("VMOVDQU64 nibbleValues<>(SB), Z%d", nibbleValues)
	k.op("MOVL $15, R9")
	k.op("VPBROADCASTB R9, Z%d", nibbleBits)
	k.clearSums()
}

func (k *streamFP4) clearSums() {
	for t := range sumsFP4 {
		k.emit(tilezero(t))
	}
}

// storeSums writes the sums of a unit to R9.
func (k *streamFP4) storeSums() {
	for t := range sumsFP4 {
		k.emit(tilestore(t, memory{base: "R9", index: "DX", disp: t * k.tile()}))
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
	k.clearSums()
	k.op("ADDQ $%d, streamArgs_sums(AX)", sumsFP4*k.tile())
	k.at(same)
}

// phase fills a group of the block and, meanwhile, multiplies what was filled before.
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

// steps fills half of the rows and multiplies one step of what the phase before filled, two times.
func (k *streamFP4) steps(group int, multiply, fill bool) {
	n := k.tilesX()
	index, first := "R15", 2*(1-group)
	if n > 1 {
		index, first = "DX", 0
		k.op("MOVQ R15, R10")
		k.op("SUBQ DI, R10")
	} else {
		k.op("LEAQ %d(DI), R10", (1-group)*groupHalf)
		k.op("ADDQ $%d, DI", group*groupHalf)
	}
	loadW := func(i int) { k.emit(tileload(memory{base: "R10", index: index, disp: i * 1024}, streamW+i)) }
	loadX := func(j int) {
		m := memory{base: "SI", index: "DX", disp: j * k.tile()}
		if n == 2 { // as in stream.go
			k.emit(tileloadOnce(m, streamX+j))
		} else {
			k.emit(tileload(m, streamX+j))
		}
	}
	product := func(i, j int) { k.emit(tdpbssd(streamX+j, streamW+i, first+i*n+j)) }
	at := map[int]func(){ // tile instructions before a row
		0:  func() { loadX(0); loadW(0) },
		4:  func() { product(0, 0); loadW(1) },
		12: func() { product(1, 0) },
	}
	if n == 2 {
		at = map[int]func(){
			0:  func() { loadW(0); loadX(0) },
			4:  func() { product(0, 0); loadX(1) },
			8:  func() { product(0, 1); loadW(1) },
			12: func() { product(1, 0); product(1, 1) },
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
		if fill { // sixteen lines of weights have a line of scales
			k.op("PREFETCHT1 (BX)")
			k.op("ADDQ $64, BX")
		}
		k.op("ADDQ $%d, DI", groupRows/2*64)
		k.op("ADDQ $%d, R10", groupStep)
		if multiply {
			k.op("ADDQ $%d, SI", n*k.tile())
		}
	})
	k.op("SUBQ $%d, DI", groupRows*64+group*groupHalf)
	if n == 1 && group == 1 {
		k.op("SUBQ $%d, SI", 2*k.tile()) // the other group has the same columns
	}
}

// fill decodes 64 bytes of a row, and prefetches.
func (k *streamFP4) fill(row int) {
	even := 4 * (row % 4)
	odd, window := even+1, even+2
	k.op("VMOVDQU64 (R9), Z%d", even)
	k.op("VPBROADCASTD (R11), Z%d", window)
	k.op("ADDQ CX, R9")
	k.op("ADDQ R8, R11")
	k.op("VPSHUFB Z%d, Z%d, Z%d", windowLane, window, window)
	k.op("VPSRLW $4, Z%d, Z%d", even, odd)
	for step, z := range []int{even, odd} {
		k.op("VPTERNLOGD $0xA2, Z%d, Z%d, Z%d", window, nibbleBits, z) // bits of a code ? z & window : window
		k.op("VPERMB Z%d, Z%d, Z%d", nibbleValues, z, z)
		k.op("VMOVDQA64 Z%d, %d(DI)", z, step*groupStep+64*row)
	}
	k.fetchPlace(row)
}
