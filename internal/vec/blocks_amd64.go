//go:build !purego

package vec

import (
	"unsafe"

	"golang.org/x/sys/cpu"

	"sparrow/internal/block"
)

// The structs below are the arguments of the kernels for block formats. Distances are in bytes. The assembly reads the
// fields by their generated offsets.

// blockArgs are the arguments of kernels that multiply sixteen weight rows by rows of x, or unpack them into a panel.
type blockArgs struct {
	rows [tileSide]unsafe.Pointer // first block of each weight row; the last row is repeated if there are fewer
	//lint:ignore U1000 only the assembly uses it
	next    [2]uintptr      // addresses after the last row
	offsets [tileSide]int32 // bytes from rows[0] to each row
	steps   int             // blocks of 256, or pairs of blocks of 32
	second  int             // bytes from the first to the second block of a pair
	last    int             // second for the last pair: 0 if that pair is one block
	ahead   int             // bytes from a step to the bytes to prefetch, which may be out of range
	x       unsafe.Pointer  // codes of x
	panel   unsafe.Pointer  // output: unpacked codes
	scales  unsafe.Pointer  // scales of x; when filling a panel, output: scales of weights
	sums    unsafe.Pointer  // sums of x; when filling a panel, output: minimums of weights
	y       unsafe.Pointer  // output
	strideX int             // kernels of four rows: bytes between rows of x
	count   int             // number of rows of x that exist; the kernel counts it down
	ldy     int             // bytes between rows of y
	trees   unsafe.Pointer  // scratch memory of the kernel, 4224 bytes
	mask    int             // bit r is set if weight row r exists
	lanes   [8]int32        // for kernels of eight rows: all bits set for rows that exist
	add     int             // 1 to add to the values of y
	grid    unsafe.Pointer  // lookup table of the format, or nil
	stride  int             // kernels of lanes: bytes between weight rows
}

// blockTileArgs are the arguments of kernels that multiply units of sixteen rows of x by a panel.
type blockTileArgs struct {
	shapes       tileShapes // first field, because LDTILECFG reads it there
	x, scalesX   unsafe.Pointer
	parts        unsafe.Pointer
	panel        unsafe.Pointer
	scales, mins unsafe.Pointer
	sums         unsafe.Pointer // sums of two times four tiles
	results      unsafe.Pointer // [units, 16, 16]
	unitX        int            // bytes between units
	offsetX      int            // offset of the current unit in bytes; the kernel advances it
	units        int
	steps        int
	fresh        int     // 1 if results begin at zero instead of with the values in memory
	soon         uintptr // address of lines to prefetch
}

// blockQuantArgs are the arguments of kernels that quantise groups of a row of x.
type blockQuantArgs struct {
	x, codes, scales, sums, parts unsafe.Pointer
	groups                        int
}

// blockTurnArgs are the arguments of kernels that interleave lines of sixteen rows.
type blockTurnArgs struct {
	from, to unsafe.Pointer
	ld       int
	lines    int
}

const (
	panelValues = 1024 // values of a row in a panel
	// Bytes of the parts of the panel's memory: codes, scales, minimums, and the sums of two steps.
	blockPanel  = tileSide * panelValues
	blockScales = panelValues / 32 * tileSide * 4
	blockMins   = panelValues / 256 * tileSide * lineBytes
	blockSums   = 2 * 4 * tileBytes
)

// blockScratch is the memory of one call.
type blockScratch struct {
	rows  blockArgs
	plain blockArgs // arguments for plain blocks
	tiles blockTileArgs
	fold  foldArgs
	quant blockQuantArgs
	turn  blockTurnArgs

	plainPanel plainPanelArgs
	record     recordArgs
	panelDot   panelDotArgs
	records    []byte // [k/256, rows]: records of several rows of x

	panel   []byte // codes, then scales, minimums and sums; or plain blocks
	results []byte // [units, 16, 16] float32
}

var blockScratches recycler[blockScratch]

// releaseBlocks drops the pointers into the caller's memory and returns s.
func releaseBlocks(s *blockScratch) {
	s.rows, s.plain = blockArgs{}, blockArgs{}
	s.quant, s.turn, s.fold = blockQuantArgs{}, blockTurnArgs{}, foldArgs{}
	s.tiles.x, s.tiles.scalesX, s.tiles.parts = nil, nil, nil
	s.record = recordArgs{}
	blockScratches.put(s)
}

// blockKernels are the kernels of a format: dot multiplies sixteen weight rows by one row of x, dot4 by up to four rows
// of x; dot8 multiplies eight weight rows by one row of x, with AVX2; fill unpacks sixteen weight rows into a panel for
// tiles. Formats without dot or dot4 are multiplied by kernels of lanes or by panels.
type blockKernels struct{ dot, dot4, dot8, fill func(*blockArgs) }

// kernelsOf returns the kernels that multiply packed blocks of a format; the zero value if there are none.
func kernelsOf(f block.Format) blockKernels {
	switch f {
	case block.Q8_0:
		return blockKernels{blockDotQ80, blockDot4Q80, blockDot2Q80, blockFillQ80}
	case block.Q4_0:
		return blockKernels{nil, blockDot4Q40, blockDot2Q40, blockFillQ40}
	case block.MXFP4:
		return blockKernels{nil, blockDot4MXFP4, blockDot2MXFP4, blockFillMXFP4}
	case block.Q4_1:
		return blockKernels{dot4: blockDot4Q41}
	case block.Q5_0:
		return blockKernels{dot4: blockDot4Q50}
	case block.Q5_1:
		return blockKernels{dot4: blockDot4Q51}
	case block.IQ4_NL:
		return blockKernels{dot4: blockDot4IQ4NL}
	case block.Q4_K:
		return blockKernels{nil, nil, blockDot2Q4K, blockFillQ4K}
	default:
		return blockKernels{blockDotQ6K, blockDot4Q6K, blockDot2Q6K, blockFillQ6K}
	}
}

// hasVNNI reports whether the processor has the integer dot products of AVX-512.
func hasVNNI() bool { return hasAVX512() && cpu.X86.HasAVX512VNNI }

// vnniBlocks computes products with the dot-product instructions of AVX-512, for a few rows of x at a time.
var vnniBlocks = &blockOps{together: 1, quant: quantRow512, mul: mulBlocksRows, unpacks: true,
	planes: wordPlanes, groups: groups512}

// avx2Blocks computes products in registers of eight lanes, with AVX2.
var avx2Blocks = &blockOps{together: 1, quant: quantRowGo, mul: mulBlocksRows8, unpacks: true,
	groups: groups2}

// tileBlocks computes products of several rows of x on AMX tiles.
var tileBlocks = &blockOps{together: tileSide, quant: quantRow512, turn: turnLines512, mul: mulBlocksTiles,
	unpacks: true, planes: wordPlanes, groups: groups512}

// hasBytePermutes reports whether the processor has byte permutations and affine maps of bits in 512 bits.
func hasBytePermutes() bool { return cpu.X86.HasAVX512VBMI && cpu.X86.HasAVX512GFNI }

// withBytes returns the products of o with the planes that the kernels of byteGrids multiply, if this processor can run
// these kernels.
func (o blockOps) withBytes() *blockOps {
	if hasBytePermutes() {
		o.planes = bytePlanes
	}
	return &o
}

func quantRow512(q quantRow, x []float32, group int) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	a := &s.quant
	clear(q.codes[len(x):])
	clear(q.scales[4*len(x)/group:])
	// Each call quantises groups for about ten microseconds, because assembly cannot be preempted.
	const most = 16384
	for from := 0; from < len(x); from += most {
		n := min(most, len(x)-from)
		*a = blockQuantArgs{x: at(x, from), codes: at(q.codes, from), scales: at(q.scales, 4*from/group),
			groups: n / group}
		if group == 32 {
			a.sums = at(q.sums, 4*from/32)
			runKernel(blockQuant32avx512, a)
			continue
		}
		a.sums, a.parts = at(q.sums, from/256*32), at(q.parts, from/256*32)
		runKernel(blockQuant256avx512, a)
	}
}

func turnLines512(to, from []byte, ld, bytes int) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.turn = blockTurnArgs{from: at(from, 0), to: at(to, 0), ld: ld, lines: bytes / lineBytes}
	runKernel(blockTurnavx512, &s.turn)
}

// take sets the arguments to up to most weight rows, starting at row j and value k.
func (a *blockArgs) take(c *BlockCut, f block.Format, w []byte, ldw, j, k, most int) {
	n, from := min(most, c.N-j), j*ldw+k/f.Values()*f.Bytes()
	for r := range most {
		row := min(r, n-1) * ldw
		a.rows[r], a.offsets[r] = at(w, from+row), int32(row)
	}
	a.mask, a.add = 1<<n-1, flag(c.Add)
	for r := range a.lanes {
		a.lanes[r] = -int32(flag(r < n))
	}
	a.second = f.Bytes()
}

// stepsOf sets the number of steps for the given number of values of each row.
func (a *blockArgs) stepsOf(f block.Format, values int) {
	if f.Values() == 256 {
		a.steps = values / 256
		return
	}
	blocks := values / 32
	a.steps, a.last = (blocks+1)/2, f.Bytes()*(1-blocks%2)
}

// mulBlocksRows multiplies sixteen weight rows by one row of x, or up to four, at a time. The weight rows stay in the
// L1 or L2 cache until all rows of x have been multiplied.
func mulBlocksRows(c BlockCut, f block.Format, w []byte, ldw int) {
	p, rows := panelOf(f, c.X), c.M1-c.M0
	if dot := laneDots[f]; dot != nil && (rows == 1 || rows == 2 && p.fill != nil) {
		mulLanes(c, f, w, ldw, dot)
		return
	}
	if g := gridsFor(c.X)[f]; g != nil && rows <= g.most {
		mulGrids(c, f, w, ldw, g)
		return
	}
	if p != nil && (rows >= leastPanelRows || p.planes || p.fill != nil) {
		mulPanels(c, f, w, ldw, p)
		return
	}
	if unpacked(f) && f.Values() == 256 {
		mulUnpacked(c, f, w, ldw, plainOf512(f))
		return
	}
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.ready(&c)
	a, kernels := &s.rows, kernelsOf(f)
	a.strideX, a.ldy, a.trees = c.X.unitBytes(), 4*c.Ldy, s.tiles.sums
	for j := 0; j < c.N; j += tileSide {
		a.take(&c, f, w, ldw, j, 0, tileSide)
		a.ahead = tileSide * ldw
		for m := c.M0; m < c.M1; m += blockRowsOnce {
			a.stepsOf(f, c.X.k)
			a.row(&c, m, j)
			if a.count = min(blockRowsOnce, c.M1-m); a.count == 1 {
				runKernel(kernels.dot, a)
			} else {
				runKernel(kernels.dot4, a)
			}
			a.ahead = 0
		}
	}
}

// mulBlocksRows8 is mulBlocksRows with AVX2, for eight weight rows at a time.
func mulBlocksRows8(c BlockCut, f block.Format, w []byte, ldw int) {
	if unpacked(f) {
		mulUnpacked(c, f, w, ldw, plainOf2(f))
		return
	}
	s := blockScratches.get()
	defer releaseBlocks(s)
	a, kernel := &s.rows, kernelsOf(f).dot8
	rows := len(a.lanes)
	for j := 0; j < c.N; j += rows {
		a.take(&c, f, w, ldw, j, 0, rows)
		a.ahead = rows * ldw
		for m := c.M0; m < c.M1; m++ {
			a.steps = c.X.k / f.Values()
			a.row(&c, m, j)
			runKernel(kernel, a)
			a.ahead = 0
		}
	}
}

// row sets the arguments to row m of x and to its results, starting at column j.
func (a *blockArgs) row(c *BlockCut, m, j int) {
	x := c.X.row(c.X.unit(m))
	a.x, a.scales, a.sums = at(x.codes, 0), at(x.scales, 0), at(x.sums, 0)
	a.y = at(c.Y, (m-c.M0)*c.Ldy+j)
}

// mulBlocksTiles multiplies units of sixteen rows on tiles, and single rows with mulBlocksRows.
func mulBlocksTiles(c BlockCut, f block.Format, w []byte, ldw int) {
	if c.X.rows == 1 { // always so for formats that are unpacked
		mulBlocksRows(c, f, w, ldw)
		return
	}
	s := blockScratches.get()
	defer releaseBlocks(s)
	s.ready(&c)
	a, depth := &s.rows, panelValues
	if f.Values() == 256 {
		depth /= 2 // codes are in two parts; panel and x should stay in the L1 cache
	}
	for j := 0; j < c.N; j += tileSide {
		for k := 0; k < c.X.k; k += depth {
			a.take(&c, f, w, ldw, j, k, tileSide)
			values := min(depth, c.X.k-k)
			// While a panel is multiplied, a part of the next weight rows is prefetched. The address may be out of
			// range; prefetch ignores that.
			a.ahead = 0
			s.tiles.soon = uintptr(at(w, j*ldw)) + uintptr(tileSide*(ldw+k/f.Values()*f.Bytes()))
			s.fillPanel(f, values)
			s.times(&c, f, k, values)
		}
		s.foldUnits(&c, j)
	}
}

// ready allocates the buffers of a call.
func (s *blockScratch) ready(c *BlockCut) {
	if s.panel == nil {
		s.panel = alignedBytes(blockPanel + blockScales + blockMins + blockSums)
	}
	if n := (c.M1 - c.M0 + tileSide - 1) / tileSide * tileBytes; len(s.results) < n {
		s.results = alignedBytes(n + n/4)
	}
	t := &s.tiles
	t.panel, t.scales = at(s.panel, 0), at(s.panel, blockPanel)
	t.mins, t.sums = at(s.panel, blockPanel+blockScales), at(s.panel, blockPanel+blockScales+blockMins)
}

// fillPanel unpacks the next values of the weight rows into the panel.
func (s *blockScratch) fillPanel(f block.Format, values int) {
	a, t := &s.rows, &s.tiles
	a.panel, a.scales, a.sums = t.panel, t.scales, t.mins
	a.stepsOf(f, values)
	runKernel(kernelsOf(f).fill, a)
}

// times adds the products of units of x and the panel to the results. The columns of the panel begin at k.
func (s *blockScratch) times(c *BlockCut, f block.Format, k, values int) {
	x, t := c.X, &s.tiles
	unit := x.unit(c.M0 / tileSide)
	scales := tileSide * x.codesBytes()
	parts := scales + tileSide*x.scalesBytes()
	t.x, t.scalesX = at(unit, tileSide*k), at(unit, scales+k/x.group*lineBytes)
	t.results, t.fresh = at(s.results, 0), flag(k == 0)
	t.unitX, t.offsetX, t.units = x.unitBytes(), 0, (c.M1-c.M0+tileSide-1)/tileSide
	t.shapes = tileShapes{}
	if x.group == 32 {
		t.steps = (values + 63) / 64
		for i := range 2 {
			t.shapes.set(i, tileSide, pairLanes)
			t.shapes.set(2+i, tileSide, 32)
			t.shapes.set(4+i, 8, pairLanes)
		}
		runKernel(blockTiles32, t)
		return
	}
	t.steps, t.parts = values/256, at(unit, parts+k/256*8*lineBytes)
	for i := range 6 {
		t.shapes.set(i, tileSide, pairLanes)
	}
	t.shapes.set(6, tileSide, 32) // tile of the minimums, which are stored twice
	t.shapes.set(7, 8, pairLanes)
	if f == block.Q4_K {
		runKernel(blockTilesQ4K, t)
	} else {
		runKernel(blockTilesQ6K, t)
	}
}

// foldUnits writes the results of sixteen weight rows, starting at row j, to y.
func (s *blockScratch) foldUnits(c *BlockCut, j int) {
	a, rows := &s.fold, c.M1-c.M0
	*a = foldArgs{ldy: 4 * c.Ldy, nextSums: tileBytes, nextY: 4 * tileSide * c.Ldy, mask: s.rows.mask, add: flag(c.Add)}
	if whole := rows / tileSide; whole > 0 {
		a.sums, a.y, a.rows, a.tiles = at(s.results, 0), at(c.Y, j), tileSide, whole
		runKernel(foldTilesPlain, a)
	}
	if rest := rows % tileSide; rest > 0 {
		whole := rows / tileSide
		a.sums, a.y, a.rows, a.tiles = at(s.results, whole*tileBytes), at(c.Y, whole*tileSide*c.Ldy+j), rest, 1
		runKernel(foldTilesPlain, a)
	}
}
