package main

import "fmt"

// Streaming kernels: up to sixteen rows of x by coded weights that come from
// memory. They take 64 rows of weights, in two groups of 32, and widen 64 columns
// of a group into one half of a small panel while the tiles multiply the other
// half. Both groups meet the same 128 columns of x in turn, so that every second
// time these come from the nearest cache. Sums are taken in the order of the tile
// kernels.
//
// A block of 128 columns is four phases; each fills (f) and multiplies (m):
//
//	phase     0          1          2          3
//	f         group 0 a  group 0 b  group 1 a  group 1 b    a, b: first and last 64 columns
//	m         group 1 b  group 0 a  group 0 b  group 1 a    in phase 0 of the block before
//	panel     f 0, m 1   f 1, m 0   f 0, m 1   f 1, m 0     halves
//
// Multiplying and widening compete for one port of the processor, so tile
// instructions are spread evenly between the rows that are widened.
//
// Up to eight rows of x are one tile, whose columns are both parts of all of them,
// and the sums of both groups stay in tiles. Sixteen are two: their sums take all
// the tiles there are for one group, so they are exchanged for those of the other
// group at the end of a block.
//
//	AX arguments     BX column of w     CX, R10 one, three strides of w   R9 rows of w
//	SI x             DI panel           DX, R15 bytes between lines of x and of everything else
//	R8 blocks left   R11 tables, or scales
//	R12 what to fetch, R13, R14 one, three strides between the eight places where that goes on
//	Z24 scale of the block before
func emitStreams(e *emitter) {
	for _, rows := range []int{16, 8, 4, 1} {
		for _, scaled := range []bool{false, true} {
			(&stream{rows: rows, columns: min(2*rows, 16), scaled: scaled}).emit(e)
		}
	}
}

// fetchPlace fetches a line at place r of eight and moves on.
func fetchPlace(e *emitter, r int) {
	e.op("PREFETCHT1 %s", spaced("R12", "R13", "R14", "", 0, r%4))
	switch r % 8 {
	case 3:
		e.op("LEAQ (R12)(R13*4), R12")
	case 7:
		e.op("ADDQ streamArgs_backAhead(AX), R12")
	}
}

// nextRun counts bytes of the run and jumps to the next one after the last.
func nextRun(e *emitter, bytes int) {
	same := e.label("same")
	e.op("SUBQ $%d, streamArgs_leftAhead(AX)", bytes)
	e.op("JGT %s", same)
	e.op("ADDQ streamArgs_jumpAhead(AX), R12")
	e.op("MOVQ streamArgs_runAhead(AX), R9")
	e.op("MOVQ R9, streamArgs_leftAhead(AX)")
	e.at(same)
}

// stream is a kernel for one group of rows of x, in tiles of that many columns.
// Scaled ones add the sums of each block times its scale to those in memory; the
// others have scales in their tables.
type stream struct {
	rows    int
	columns int
	scaled  bool
}

const (
	streamGroup = 32               // rows of a group
	streamStep  = 64 * streamGroup // bytes of a step in the panel
	streamHalf  = 2 * streamStep   // bytes of half a panel
	streamW     = 4                // first of two tiles of weights
	streamX     = 6                // first of two tiles of x
	streamScale = 24               // register of the scale
	streamLine  = 4 * 64           // bytes each fetching place moves on in a phase

	// Bytes from the panel to scratch memory for four tiles, where the kernels
	// of few columns also keep their sums, and to the sums. The Go side allocates
	// them so.
	streamBlock = 32768
	streamFew   = streamBlock + 2048
	streamSums  = streamBlock + 4096
)

// line is the bytes of a line of a tile of x or of sums; part those of a tile.
func (k *stream) line() int { return 4 * k.columns }
func (k *stream) part() int { return 16 * k.line() }

// few says that a line of a tile is less than a register. Such sums are kept one
// line after the other, except in memory between calls.
func (k *stream) few() bool { return k.columns < 16 }

// wide says that a group of rows of x is two tiles.
func (k *stream) wide() bool { return k.rows > 8 }

// nx is the tiles of a group of rows of x.
func (k *stream) nx() int {
	if k.wide() {
		return 2
	}
	return 1
}

// sum is the tile of the sums of a group of weights, tile w of it by tile x.
func (k *stream) sum(group, w, x int) int {
	if k.wide() {
		return 2*w + x
	}
	return 2*group + w
}

// sumsAt is where the sums of a group lie in memory between calls, blockAt where
// those of a block wait to be scaled. The two groups of a wide kernel wait in turn.
func (k *stream) sumsAt(group int) int { return streamSums + group*2*k.nx()*1024 }
func (k *stream) blockAt(group int) int {
	if k.wide() {
		return streamBlock
	}
	return streamBlock + 2*group*k.part()
}

// lines is the registers that the sums of a group take.
func (k *stream) lines() int { return 2 * k.nx() * k.part() / 64 }

func (k *stream) emit(e *emitter) {
	name := fmt.Sprintf("stream%d", k.rows)
	if k.scaled {
		name += "scaled"
	}
	e.function(name, "streamArgs", fmt.Sprintf("%d rows of x in two parts by 64 rows of e4m3 codes, whole blocks of 128 columns.", k.rows))
	k.begin(e)
	loop, last := e.label("loop"), e.label("last")
	k.phase(e, 0, false)
	e.op("JMP %s", last) // into the loop, past the phase that has something to multiply
	e.at(loop)
	k.tables(e)
	k.phase(e, 0, true)
	e.op("ADDQ $%d, SI", 4*k.nx()*k.part())
	k.blockSums(e, 1)
	e.at(last)
	k.phase(e, 1, true)
	k.phase(e, 2, true)
	k.blockSums(e, 0)
	if k.scaled {
		e.op("VBROADCASTSS (R11), Z%d", streamScale)
		e.op("ADDQ $4, R11")
	}
	k.phase(e, 3, true)
	e.op("DECQ R8")
	e.op("JNZ %s", loop)
	k.multiply(e, 0, func(int) {})
	k.addAll(e, 0)
	k.blockSums(e, 1)
	k.addAll(e, 1)
	k.end(e)
	e.emit(tilerelease())
	e.ret()
}

func (k *stream) begin(e *emitter) {
	e.emit(ldtilecfg(memory{base: "AX"}))
	e.op("MOVQ streamArgs_w(AX), BX")
	e.op("MOVQ streamArgs_ldw(AX), CX")
	e.op("LEAQ (CX)(CX*2), R10")
	e.op("MOVQ streamArgs_x(AX), SI")
	e.op("MOVQ streamArgs_panel(AX), DI")
	e.op("MOVQ streamArgs_blocks(AX), R8")
	e.op("MOVQ streamArgs_ahead(AX), R12")
	e.op("MOVQ streamArgs_ldAhead(AX), R13")
	e.op("LEAQ (R13)(R13*2), R14")
	e.op("MOVQ $%d, DX", k.line())
	e.op("MOVQ $64, R15")
	decoderConstants(e, "R9")
	for t := range 4 { // in wide kernels those of group 0
		if !k.scaled || k.few() {
			e.emit(tileload(memory{base: "DI", index: "R15", disp: streamSums + 1024*t}, t))
		}
	}
	e.op("MOVQ streamArgs_tables(AX), R11")
	if !k.scaled {
		k.tables(e)
		return
	}
	e.op("MOVQ (R11), R9")
	scaledTables(e, "R9")
	e.op("MOVQ streamArgs_scales(AX), R11")
	if k.few() {
		k.storeTiles(e, 0, streamFew)
		k.storeTiles(e, 1, streamFew+2*k.part())
	}
	// Nothing is to be added before the first blocks are done.
	e.op("VPXORD Z%d, Z%d, Z%d", streamScale, streamScale, streamScale)
	for t := range 4 {
		e.emit(tilezero(t))
	}
	for g := range 2 {
		k.storeTiles(e, g, k.blockAt(g))
	}
}

// storeTiles writes the sums of a group, line after line.
func (k *stream) storeTiles(e *emitter, group, at int) {
	for w := range 2 {
		for x := range k.nx() {
			e.emit(tilestore(k.sum(group, w, x), memory{base: "DI", index: "DX", disp: at + (w*k.nx()+x)*k.part()}))
		}
	}
}

// tables loads the tables of the next block.
func (k *stream) tables(e *emitter) {
	if k.scaled {
		return
	}
	e.op("MOVQ (R11), R9")
	e.op("ADDQ $8, R11")
	scaledTables(e, "R9")
}

// phase fills 64 columns of a group and, meanwhile, multiplies what was filled
// before. Phases 0 and 2 add the sums of the block before, whose tiles were
// stored a phase ago: by then they have reached the cache.
func (k *stream) phase(e *emitter, p int, multiply bool) {
	group, at := p/2, p%2*streamHalf
	e.note("phase %d", p)
	e.op("MOVQ BX, R9")
	if group == 1 {
		e.op("ADDQ streamArgs_lower(AX), R9")
	}
	fill := func(r int) {
		e.op("VMOVDQU64 %s, Z0", spaced("R9", "CX", "R10", "", p%2*64, r%4))
		fetchPlace(e, r)
		decodeEvenOdd(e, 0, 1, 2)
		e.op("VMOVDQA64 Z0, %d(DI)", at+64*r)
		e.op("VMOVDQA64 Z1, %d(DI)", at+streamStep+64*r)
		if r%4 == 3 {
			e.op("LEAQ (R9)(CX*4), R9")
		}
		if p%2 == 0 && multiply {
			k.addRow(e, group, r)
		}
	}
	if multiply {
		k.multiply(e, p, fill)
	} else {
		for r := range streamGroup {
			fill(r)
		}
	}
	if p == 3 {
		e.op("ADDQ $128, BX")
	}
	nextRun(e, streamLine)
}

// multiply multiplies what the phase before p filled: two steps of two tiles of
// rows. It calls between for each of 32 rows.
func (k *stream) multiply(e *emitter, p int, between func(r int)) {
	before := (p + 3) % 4
	group, panel := before/2, before%2*streamHalf
	w := func(step, i int) func() {
		return func() {
			e.emit(tileload(memory{base: "DI", index: "R15", disp: panel + step*streamStep + i*1024}, streamW+i))
		}
	}
	x := func(step, i int) func() {
		return func() {
			e.emit(tileload(memory{base: "SI", index: "DX", disp: ((before%2*2+step)*k.nx() + i) * k.part()}, k.tileX(step, i)))
		}
	}
	product := func(step, i, j int) func() {
		return func() { e.emit(tdpbf16ps(k.tileX(step, j), streamW+i, k.sum(group, i, j))) }
	}
	for r := range streamGroup {
		step := r / 16
		between(r)
		at := map[int][]func(){0: {w(step, 0), x(step, 0)}, 4: {product(step, 0, 0)}, 8: {w(step, 1)}, 12: {product(step, 1, 0)}}
		if k.wide() {
			at = map[int][]func(){
				0: {w(step, 0), x(step, 0)}, 2: {product(step, 0, 0)},
				4: {x(step, 1)}, 6: {product(step, 0, 1)},
				8: {w(step, 1)}, 10: {product(step, 1, 0)}, 13: {product(step, 1, 1)},
			}
		}
		for _, emit := range at[r%16] {
			emit()
		}
	}
}

// tileX is the tile of x for a step: those of one tile take turns.
func (k *stream) tileX(step, i int) int {
	if k.wide() {
		return streamX + i
	}
	return streamX + step
}

// blockSums takes the sums of a block of a group out of its tiles. In wide kernels
// they make room for the other group's.
func (k *stream) blockSums(e *emitter, group int) {
	if !k.scaled {
		if k.wide() {
			k.storeTiles(e, group, k.sumsAt(group))
			for t := range 4 {
				e.emit(tileload(memory{base: "DI", index: "R15", disp: k.sumsAt(1-group) + 1024*t}, t))
			}
		}
		return
	}
	k.storeTiles(e, group, k.blockAt(group))
	for w := range 2 {
		for x := range k.nx() {
			e.emit(tilezero(k.sum(group, w, x)))
		}
	}
}

// addRow adds what belongs to row r of the 32 that are filled meanwhile.
func (k *stream) addRow(e *emitter, group, r int) {
	for i := range k.nx() {
		k.add(e, group, k.nx()*r+i)
	}
}

// addAll adds a group's stored sums.
func (k *stream) addAll(e *emitter, group int) {
	for r := range k.lines() {
		k.add(e, group, r)
	}
}

// add adds register r of a group's stored sums, times the scale, to the others.
func (k *stream) add(e *emitter, group, r int) {
	if !k.scaled || r >= k.lines() {
		return
	}
	from, to := k.blockAt(group)+64*r, k.sumsAt(group)+64*r
	if k.few() {
		to = streamFew + 2*group*k.part() + 64*r
	}
	t := 4 + r%4
	e.op("VMOVUPS %d(DI), Z%d", from, t)
	e.op("VFMADD213PS %d(DI), Z%d, Z%d", to, streamScale, t)
	e.op("VMOVUPS Z%d, %d(DI)", t, to)
}

// end leaves all sums in memory.
func (k *stream) end(e *emitter) {
	if k.wide() || k.scaled && !k.few() {
		return // there already
	}
	if k.scaled {
		for t := range 4 {
			e.emit(tileload(memory{base: "DI", index: "DX", disp: streamFew + t*k.part()}, t))
		}
	}
	for t := range 4 {
		e.emit(tilestore(t, memory{base: "DI", index: "R15", disp: streamSums + 1024*t}))
	}
}
