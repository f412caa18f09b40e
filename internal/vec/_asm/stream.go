package main

import "fmt"

// Streaming kernels: up to sixteen rows of x by coded weights that come from memory. They process groups of 32 rows of
// weights, called units, one after the other. 64 columns of a unit are widened into one half of a small panel while the
// tiles multiply the other half. Sums are taken in the order of the tile kernels. While a unit is multiplied the next
// one is prefetched: longer units would leave the L2 cache before they are used.
//
// A block of 128 columns is two phases; each fills (f) and multiplies (m):
//
//	phase     0                     1
//	f         first 64 columns      last 64 columns
//	m         last of block before  first
//	panel     f half 0, m half 1    f half 1, m half 0
//
// Up to eight rows of x are one tile, whose columns are both parts of all of them, and its sums are two tiles. Sixteen
// rows are two tiles, and their sums four.
//
// Tile instructions are spread evenly between the rows that are widened.
//
//	AX arguments     BX column of w     CX, R10 one, three strides of w   R9 rows of w
//	SI x             DI panel           DX, R15 bytes between lines of x and of everything else
//	R8 sums          R11 scale of the block
//	R12 address to prefetch, R13, R14 one, three strides between the eight prefetch cursors
//	Z25 scale of sums   Z26 to Z29 tables of the block, lower and upper bytes   Z30 sign bits
func emitStreams(e *emitter) {
	codeSignData(e)
	for _, rows := range []int{16, 8, 4, 1} {
		for _, scaled := range []bool{false, true} {
			(&stream{emitter: e, rows: rows, scaled: scaled}).write()
		}
	}
}

// stream is a kernel for one group of rows of x. Scaled ones add the sums of each
// block times its scale to those in memory; the others have scales, which are
// powers of two, in the tables that widen weights.
type stream struct {
	*emitter
	rows   int
	scaled bool
}

const (
	streamW     = 4      // number of the first of two tile registers of weights
	streamX     = 6      // number of the first of two tile registers of x
	streamScale = 25     // register of the scale
	streamLine  = 4 * 64 // bytes that each prefetch cursor advances in 32 rows

	// Bytes from the panel to scratch memory for four tiles. The Go code allocates them at this distance.
	streamBlock = 32768

	// An entry of the scales: table, scale.
	entryBytes, entryScale = 16, 8

	// groupFours is the number of groups of four weight rows in a unit.
	groupFours = groupRows / 4
)

// streamCodes are the registers of the tables that widen codes.
var streamCodes = codeRegisters{low: 26, high: 28, sign: 30}

// tilesX returns the number of tiles of x.
func (k *stream) tilesX() int {
	if k.rows > 8 {
		return 2
	}
	return 1
}

// sums returns the number of tiles that hold the sums of a unit.
func (k *stream) sums() int { return 2 * k.tilesX() }

// columns returns the number of columns of a tile of x or of sums, line the bytes of one of its lines, and tile the
// bytes of the tile.
func (k *stream) columns() int { return min(2*k.rows, 16) }
func (k *stream) line() int    { return 4 * k.columns() }
func (k *stream) tile() int    { return 16 * k.line() }

// lines returns the number of registers that hold the sums of a unit.
func (k *stream) lines() int { return k.sums() * k.tile() / 64 }

// unitSums returns the number of bytes of the sums of a unit.
func (k *stream) unitSums() int { return k.sums() * k.tile() }

func (k *stream) write() {
	name := fmt.Sprintf("stream%d", k.rows)
	if k.scaled {
		name += "scaled"
	}
	k.function(name, "streamArgs",
		fmt.Sprintf("%d rows of x in two parts by units of %d rows of e4m3 codes, whole blocks of 128 columns.",
			k.rows, groupRows))
	k.begin()
	loop, entry, done := k.label("loop"), k.label("entry"), k.label("done")
	k.phase(0, false)
	k.op("JMP %s", entry) // phase 0 has only filled, as there were no columns to multiply yet
	k.at(loop)
	k.phase(0, true)
	k.nextX()
	k.at(entry)
	k.phase(1, true)
	k.op(`
		ADDQ $128, BX
		ADDQ $%d, R11
		DECQ streamArgs_left(AX)
		JNZ %s
		DECQ streamArgs_units(AX)
		JZ %s`, entryBytes, loop, done)
	k.nextUnit()
	k.op("JMP %s", loop)
	k.at(done)
	k.multiply(0, func(int) {})
	k.end()
	emit(k.emitter, tilerelease())
	k.ret()
}

func (k *stream) begin() {
	emit(k.emitter, ldtilecfg(memory{base: "AX"}))
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
		LEAQ (R13)(R13*2), R14
		MOVQ $%d, DX
		MOVQ $64, R15
		VMOVDQU64 codeSign<>(SB), Z%d`, k.line(), streamCodes.sign)
	for t := range k.sums() {
		if k.scaled { // there are no sums to add before the first block is complete
			emit(k.emitter, tilezero(t))
		}
	}
	k.loadSums()
}

// nextX advances to the columns of x for the block that is filled. For the first block of a unit it returns to the
// first columns; the tiles then hold the sums of the previous unit.
func (k *stream) nextX() {
	same := k.label("same")
	k.op(`
		ADDQ $%d, SI
		MOVQ streamArgs_left(AX), R9
		CMPQ R9, streamArgs_blocks(AX)
		JNE %s
		MOVQ streamArgs_x(AX), SI`, 4*k.tilesX()*k.tile(), same)
	if !k.scaled {
		k.storeSums()
		k.op("ADDQ $%d, R8", k.unitSums())
		k.loadSums()
	}
	k.at(same)
}

// nextUnit advances to the next unit, and to the bytes that are prefetched with it.
func (k *stream) nextUnit() {
	k.op("ADDQ streamArgs_nextW(AX), BX")
	k.unitAhead()
}

// unitAhead resets the number of blocks for the next unit, and sets the bytes that are prefetched with it.
func (k *stream) unitAhead() {
	more := k.label("more")
	k.op(`
		MOVQ streamArgs_blocks(AX), R9
		MOVQ R9, streamArgs_left(AX)
		MOVQ streamArgs_unitAhead(AX), R12
		ADDQ streamArgs_ahead(AX), R12
		CMPQ streamArgs_units(AX), $1
		JNE %s
		MOVQ streamArgs_lastAhead(AX), R12`, more)
	k.at(more)
	k.op(`
		MOVQ R12, streamArgs_ahead(AX)
		MOVQ streamArgs_runAhead(AX), R9
		MOVQ R9, streamArgs_leftAhead(AX)`)
}

// loadSums and storeSums move the sums of a unit between tiles and memory.
func (k *stream) loadSums() {
	for t := range k.sums() {
		if !k.scaled {
			emit(k.emitter, tileload(memory{base: "R8", index: "DX", disp: t * k.tile()}, t))
		}
	}
}

func (k *stream) storeSums() {
	for t := range k.sums() {
		k.store(t, "R8", 0)
	}
}

// store stores the sums of a tile, one line after the other.
func (k *stream) store(t int, base string, at int) {
	emit(k.emitter, tilestore(t, memory{base: base, index: "DX", disp: at + t*k.tile()}))
}

// phase fills 64 columns while it multiplies the previously filled columns. If it fills the first columns of a block,
// it adds the sums that the previous phase stored, which are in the cache by then.
func (k *stream) phase(p int, multiply bool) {
	k.note("phase %d", p)
	if p == 0 {
		k.op("MOVQ (R11), R9")
		for i := range 2 {
			k.op("VMOVDQU64 %d(R9), Z%d", 64*i, streamCodes.low+i)
			k.op("VMOVDQU64 %d(R9), Z%d", 64*(2+i), streamCodes.high+i)
		}
	}
	k.op("LEAQ %d(BX), R9", 64*p)
	adds := p == 0 && multiply && k.scaled
	if adds {
		k.loadScale(2)
	}
	between := func(q int) {
		k.fill(p, q)
		for r := 4 * q; r < 4*q+4; r++ {
			k.fetchPlace(r)
		}
		k.op("LEAQ (R9)(CX*4), R9")
		if q == groupFours-1 {
			nextRun(k.emitter)
		}
		for r := q * k.lines() / groupFours; adds && r < (q+1)*k.lines()/groupFours; r++ {
			k.add(r)
		}
	}
	if !multiply {
		for q := range groupFours {
			between(q)
		}
		return
	}
	k.multiply(p, between)
	if adds {
		k.added()
	}
}

// fill widens rows 4q to 4q+3 of a group into a half of the panel, with tables for all codes. Arithmetic for ordinary
// codes, which have an exponent and are not NaN, would take fewer operations, but would also need a search for other
// codes. For weights from memory that is slower, because it ends in a branch that depends on the weights, and one in
// ten thousand weights has another code.
func (k *stream) fill(half, q int) {
	for i := range 4 {
		z := 4 * (i % 2)
		k.op("VMOVDQU64 %s, Z%d", spaced("R9", "CX", "R10", "", 0, i), z)
		unpackCodes(k.emitter, streamCodes, z, z+1, z+2)
		for step := range 2 {
			k.op("VMOVDQA64 Z%d, %d(DI)", z+step, half*groupHalf+step*groupStep+64*(4*q+i))
		}
	}
}

// added counts the blocks whose sums were added to memory. After the last block of a unit it advances to the sums of
// the next unit.
func (k *stream) added() {
	same := k.label("same")
	k.op(`
		DECQ streamArgs_leftSums(AX)
		JNZ %s
		ADDQ $%d, R8
		MOVQ streamArgs_blocks(AX), R9
		MOVQ R9, streamArgs_leftSums(AX)`, same, k.unitSums())
	k.at(same)
}

// multiply multiplies the columns that the previous phase filled: two steps of the tiles of rows by the tiles of x. It
// calls between for each four rows. p is the current phase.
func (k *stream) multiply(p int, between func(q int)) {
	n, half := k.tilesX(), 1-p
	for q := range groupFours {
		step := q / (groupFours / 2)
		w := func(i int) {
			m := memory{base: "DI", index: "R15", disp: half*groupHalf + step*groupStep + i*1024}
			emit(k.emitter, tileload(m, streamW+i))
		}
		x := func(i int) {
			m := memory{base: "SI", index: "DX", disp: ((half*2+step)*n + i) * k.tile()}
			if k.columns() >= 8 { // x comes from the L2 cache, and would evict the panel from the L1 cache
				emit(k.emitter, tileloadOnce(m, k.tileX(step, i)))
			} else {
				emit(k.emitter, tileload(m, k.tileX(step, i)))
			}
		}
		product := func(i, j int) { emit(k.emitter, tdpbf16ps(k.tileX(step, j), streamW+i, i*n+j)) }
		fresh := func(t int) {
			if half == 0 && step == 0 {
				k.exchange(t)
			}
		}
		between(q)
		if n == 2 {
			switch q % 4 {
			case 0:
				w(0)
				x(0)
				fresh(0)
				x(1)
				fresh(1)
			case 1:
				product(0, 0)
				w(1)
			case 2:
				product(0, 1)
				fresh(2)
				fresh(3)
			case 3:
				product(1, 0)
				product(1, 1)
			}
			continue
		}
		switch q % 4 {
		case 0:
			x(0)
			w(0)
			fresh(0)
		case 1:
			product(0, 0)
			w(1)
			fresh(1)
		case 3:
			product(1, 0)
		}
	}
}

// tileX returns the register of tile i of x in a step. If x has only one tile, two registers are used alternately.
func (k *stream) tileX(step, i int) int {
	if k.tilesX() == 1 {
		return streamX + step
	}
	return streamX + i
}

// exchange stores the sums of a tile and starts new sums, if the sums of a block start at zero.
func (k *stream) exchange(t int) {
	if k.scaled {
		k.store(t, "DI", streamBlock)
		emit(k.emitter, tilezero(t))
	}
}

// loadScale loads the scale of an earlier block.
func (k *stream) loadScale(before int) {
	k.op("VBROADCASTSS %d(R11), Z%d", entryScale-before*entryBytes, streamScale)
}

// add adds register r of the sums of a block, times their scale, to the sums over all blocks.
func (k *stream) add(r int) {
	to, t := at16("R8", 64*r), 8+r%4
	k.op("VMOVUPS %d(DI), Z%d", streamBlock+64*r, t)
	k.op("VFMADD213PS %s, Z%d, Z%d", to, streamScale, t)
	k.op("VMOVUPS Z%d, %s", t, to)
}

// end leaves all sums in memory. The sums of two blocks of a group have not been added yet: those that were stored, and
// those that are in the tiles.
func (k *stream) end() {
	if !k.scaled {
		k.storeSums()
		return
	}
	k.loadScale(2)
	for r := range k.lines() {
		k.add(r)
	}
	k.added()
	for t := range k.sums() {
		k.store(t, "DI", streamBlock)
	}
	k.loadScale(1)
	for r := range k.lines() {
		k.add(r)
	}
}

// fetchPlace prefetches a line at cursor r of eight and advances it. The line goes into the L2 cache: it is needed only
// after a whole unit, and with many cores at work the L1 cache has too few requests in flight.
func (k *stream) fetchPlace(r int) {
	k.op("PREFETCHT1 %s", spaced("R12", "R13", "R14", "", 0, r%4))
	switch r % 8 {
	case 3:
		k.op("LEAQ (R12)(R13*4), R12")
	case 7:
		k.op("ADDQ streamArgs_backAhead(AX), R12")
	}
}

// nextRun counts the bytes of the run that were fetched with 32 rows and jumps to
// the next run after the last.
func nextRun(e *emitter) {
	same := e.label("same")
	e.op(`
		SUBQ $%d, streamArgs_leftAhead(AX)
		JGT %s
		ADDQ streamArgs_jumpAhead(AX), R12
		PUSHQ R9
		MOVQ streamArgs_runAhead(AX), R9
		MOVQ R9, streamArgs_leftAhead(AX)
		POPQ R9`, streamLine, same)
	e.at(same)
}
