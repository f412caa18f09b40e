package main

import "fmt"

// Streaming kernels: up to sixteen rows of x by coded weights that come from
// memory. They take units of 64 rows of weights one after the other, and widen
// 64 columns of it into one half of a small panel while the tiles multiply the other
// half. Sums are taken in the order of the tile kernels: in each step of 32 columns first
// the first parts of x, then the second parts, into the same tiles.
//
// A block of 128 columns is two phases; each fills (f) and multiplies (m):
//
//	phase     0                     1
//	f         first 64 columns      last 64 columns
//	m         last of block before  first
//	panel     f half 0, m half 1    f half 1, m half 0
//
// The sums of a unit are four tiles, each tile of weights is loaded once, and the two tiles of
// x of a step once for all of them. Tile instructions are spread evenly between the rows that
// are widened.
//
// While a unit is multiplied the columns that follow are prefetched, a few blocks of them in all rows of the unit, and
// with the last ones the first of the next unit: what is prefetched long before it is used leaves the L2 cache.
//
//	AX arguments     BX column of w     CX, R10 one, three strides of w   R9 rows of w
//	SI x             DI panel           DX, R15 bytes between lines of x and of everything else
//	R8 sums          R11 scale of the block
//	R12 address to prefetch, R13, R14 one, three strides between the eight prefetch cursors
//	Z24 scale of sums   Z25 exponents of the block; see streamfill.go for the others
func (e *emitter) emitStreams() {
	e.ordinaryData()
	e.codeTablesData()
	for _, rows := range []int{16, 8, 1} {
		for _, scaled := range []bool{false, true} {
			(&stream{emitter: e, rows: rows, scaled: scaled}).write()
		}
	}
	e.emitAnyRows()
}

// stream is a kernel for one group of rows of x. Scaled ones add the sums of each
// block times its scale to those in memory; the others have scales, which are
// powers of two, in the exponents of weights.
type stream struct {
	*emitter
	rows   int
	scaled bool
	aside  []func() // what is written behind the kernel
}

const (
	streamW     = 4      // first of two tiles of weights
	streamX     = 6      // first of two tiles of x
	streamSums  = 4      // tiles of the sums of a unit
	streamScale = 24     // register of the scale
	streamPower = 25     // register of the exponents
	streamLine  = 4 * 64 // bytes each prefetch cursor advances in 32 rows

	unitRows  = 64            // of weights that are widened together
	unitFours = unitRows / 4  // how many times four rows that is
	unitStep  = 64 * unitRows // bytes of a step in the panel
	unitHalf  = 2 * unitStep

	// Bytes from the panel to scratch memory for four tiles. The Go side allocates
	// them so.
	streamBlock = 32768

	// An entry of the scales: table, exponents, scale.
	entryBytes, entryPower, entryScale = 16, 8, 12
)

// line is the bytes of a line of a tile of x or of sums, tile its own.
func (k *stream) line() int { return 4 * k.rows }
func (k *stream) tile() int { return 16 * k.line() }

// lines is the registers that the sums of a unit take.
func (k *stream) lines() int { return k.unitSums() / 64 }

// unitSums is the bytes of the sums of a unit.
func (k *stream) unitSums() int { return streamSums * k.tile() }

func (k *stream) write() {
	name := fmt.Sprintf("stream%d", k.rows)
	if k.scaled {
		name += "scaled"
	}
	k.function(name, "streamArgs",
		fmt.Sprintf("%d rows of x in two parts by units of %d rows of e4m3 codes, whole blocks of 128 columns.",
			k.rows, unitRows))
	k.begin()
	loop, entry, next, done := k.label("loop"), k.label("entry"), k.label("next"), k.label("done")
	k.phase(0, false)
	k.op("JMP %s", entry) // into the loop, past the phase that has something to multiply
	k.at(loop)
	k.phase(0, true)
	k.nextX()
	k.at(entry)
	k.phase(1, true)
	k.op("ADDQ $128, BX")
	k.op("ADDQ $%d, R11", entryBytes)
	k.op("DECQ streamArgs_left(AX)")
	k.op("JZ %s", next)
	k.op("DECQ streamArgs_leftPiece(AX)")
	k.op("JNZ %s", loop)
	k.pieceAhead()
	k.op("JMP %s", loop)
	k.at(next)
	k.op("DECQ streamArgs_units(AX)")
	k.op("JZ %s", done)
	k.op("ADDQ streamArgs_nextW(AX), BX")
	k.op("MOVQ streamArgs_blocks(AX), R9")
	k.op("MOVQ R9, streamArgs_left(AX)")
	k.pieceAhead()
	k.op("JMP %s", loop)
	k.at(done)
	k.multiply(0, func(int) {})
	k.end()
	k.emit(tilerelease())
	k.ret()
	for _, write := range k.aside {
		write()
	}
}

func (k *stream) begin() {
	k.emit(ldtilecfg(memory{base: "AX"}))
	k.op(`
		MOVQ streamArgs_w(AX), BX
		MOVQ streamArgs_ldw(AX), CX
		LEAQ (CX)(CX*2), R10
		MOVQ streamArgs_x(AX), SI
		MOVQ streamArgs_panel(AX), DI
		MOVQ streamArgs_sums(AX), R8
		MOVQ streamArgs_scales(AX), R11
		MOVQ streamArgs_ldAhead(AX), R13
		LEAQ (R13)(R13*2), R14`)
	k.op("MOVQ $%d, DX", k.line())
	k.op("MOVQ $64, R15")
	k.pieceAhead()
	k.ordinaryMaps()
	for t := range streamSums {
		if k.scaled { // nothing is to be added before the first block is done
			k.emit(tilezero(t))
		}
	}
	k.loadSums()
}

// nextX moves on to the columns of x that belong to the block that is filled. Those
// of a unit's first are the first, and what the tiles hold are then the sums of
// the unit before.
func (k *stream) nextX() {
	same := k.label("same")
	k.op("ADDQ $%d, SI", 4*2*k.tile())
	k.op("MOVQ streamArgs_left(AX), R9")
	k.op("CMPQ R9, streamArgs_blocks(AX)")
	k.op("JNE %s", same)
	k.op("MOVQ streamArgs_x(AX), SI")
	if !k.scaled {
		k.storeSums()
		k.op("ADDQ $%d, R8", k.unitSums())
		k.loadSums()
	}
	k.at(same)
}

// pieceAhead begins to prefetch what follows the piece of a unit that is taken next: the piece behind it or, with the
// last one, the first of the next unit. After the last unit it is what the caller says.
func (k *stream) pieceAhead() {
	more, known := k.label("more"), k.label("known")
	k.op("MOVQ streamArgs_left(AX), R9")
	k.op("MOVQ streamArgs_piece(AX), R12")
	k.op("CMPQ R9, R12")
	k.op("JGT %s", more)
	k.op("MOVQ R9, streamArgs_leftPiece(AX)")
	k.op("MOVQ streamArgs_lastAhead(AX), R12")
	k.op("CMPQ streamArgs_units(AX), $1")
	k.op("JEQ %s", known)
	k.op(`
		SHLQ $7, R9
		ADDQ streamArgs_nextW(AX), R9
		LEAQ (BX)(R9*1), R12`)
	k.op("JMP %s", known)
	k.at(more)
	k.op(`
		MOVQ R12, streamArgs_leftPiece(AX)
		SHLQ $7, R12
		ADDQ BX, R12`)
	k.at(known)
	k.op(`
		MOVQ streamArgs_runAhead(AX), R9
		MOVQ R9, streamArgs_leftAhead(AX)`)
}

// loadSums and storeSums move the sums of a unit between tiles and memory.
func (k *stream) loadSums() {
	for t := range streamSums {
		if !k.scaled {
			k.emit(tileload(memory{base: "R8", index: "DX", disp: t * k.tile()}, t))
		}
	}
}

func (k *stream) storeSums() {
	for t := range streamSums {
		k.store(t, "R8", 0)
	}
}

// store writes the sums of a tile, line after line.
func (k *stream) store(t int, base string, at int) {
	k.emit(tilestore(t, memory{base: base, index: "DX", disp: at + t*k.tile()}))
}

// phase fills 64 columns and, meanwhile, multiplies what was filled
// before. Where it fills the first ones it adds the sums that left the tiles in
// the phase before: by now they have reached the cache.
func (k *stream) phase(p int, multiply bool) {
	k.note("phase %d", p)
	k.op("LEAQ %d(BX), R9", 64*p)
	if p == 0 {
		k.manyRare()
		if !k.scaled {
			k.op("VPBROADCASTD %d(R11), Z%d", entryPower, streamPower)
		}
	}
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
		if (q+1)%groupFours == 0 {
			k.nextRun()
		}
		for r := q * k.lines() / unitFours; adds && r < (q+1)*k.lines()/unitFours; r++ {
			k.add(r)
		}
	}
	if !multiply {
		for q := range unitFours {
			between(q)
		}
		return
	}
	k.multiply(p, between)
	if adds {
		k.added()
	}
}

// added counts blocks whose sums were added and moves on to those of the next unit
// after the last.
func (k *stream) added() {
	same := k.label("same")
	k.op("DECQ streamArgs_leftSums(AX)")
	k.op("JNZ %s", same)
	k.op("ADDQ $%d, R8", k.unitSums())
	k.op("MOVQ streamArgs_blocks(AX), R9")
	k.op("MOVQ R9, streamArgs_leftSums(AX)")
	k.at(same)
}

// multiply multiplies what the phase before p filled: two steps of the tiles of rows by
// those of x. It calls between for each four rows.
func (k *stream) multiply(p int, between func(q int)) {
	half := 1 - p
	for q := range unitFours {
		step := q / (unitFours / 2)
		w := func(i int) {
			m := memory{base: "DI", index: "R15", disp: half*unitHalf + step*unitStep + i*1024}
			k.emit(tileload(m, streamW+i%2))
		}
		x := func(part int) {
			m := memory{base: "SI", index: "DX", disp: ((half*2+step)*2 + part) * k.tile()}
			if k.rows >= 8 { // x comes from the L2 cache, and would take the panel's place in L1
				k.emit(tileloadOnce(m, streamX+part))
			} else {
				k.emit(tileload(m, streamX+part))
			}
		}
		product := func(i, part int) { k.emit(tdpbf16ps(streamX+part, streamW+i%2, i)) }
		fresh := func(t int) {
			if half == 0 && step == 0 {
				k.exchange(t)
			}
		}
		between(q)
		switch q % 8 {
		case 0:
			w(0)
			x(0)
			fresh(0)
		case 1:
			product(0, 0)
			x(1)
			fresh(1)
		case 2:
			w(1)
			product(0, 1)
		case 3:
			product(1, 0)
			w(2)
			fresh(2)
		case 4:
			product(1, 1)
			product(2, 0)
		case 5:
			w(3)
			fresh(3)
		case 6:
			product(2, 1)
			product(3, 0)
		case 7:
			product(3, 1)
		}
	}
}

// exchange makes a tile ready for the sums of a block where they begin at zero.
func (k *stream) exchange(t int) {
	if k.scaled {
		k.store(t, "DI", streamBlock)
		k.emit(tilezero(t))
	}
}

// loadScale loads the scale of an earlier block.
func (k *stream) loadScale(before int) {
	k.op("VBROADCASTSS %d(R11), Z%d", entryScale-before*entryBytes, streamScale)
}

// add adds register r of the sums of a block of a group, times their scale, to
// those of all blocks.
func (k *stream) add(r int) {
	to, t := at16("R8", 64*r), 8+r%4
	k.op("VMOVUPS %d(DI), Z%d", streamBlock+64*r, t)
	k.op("VFMADD213PS %s, Z%d, Z%d", to, streamScale, t)
	k.op("VMOVUPS Z%d, %s", t, to)
}

// end leaves all sums in memory. Two times those of a group and a block are still
// to be added: what left the tiles, and what is in them.
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
	for t := range streamSums {
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
func (e *emitter) nextRun() {
	same := e.label("same")
	e.op("SUBQ $%d, streamArgs_leftAhead(AX)", streamLine)
	e.op("JGT %s", same)
	e.op(`
		ADDQ streamArgs_jumpAhead(AX), R12
		PUSHQ R9
		MOVQ streamArgs_runAhead(AX), R9
		MOVQ R9, streamArgs_leftAhead(AX)
		POPQ R9`)
	e.at(same)
}
