//go:build !purego

package vec

import (
	"unsafe"

	"sparrow/internal/block"
)

// Arguments of the kernels of _asm/blockpanel.go. Distances are in bytes.

// plainPanelArgs are the arguments of kernels that rearrange sixteen plain blocks into a panel.
type plainPanelArgs struct {
	plain, panel unsafe.Pointer
	pitch        int // bytes between plain blocks
	planes       int // 1 if codes are in planes
}

// recordArgs are the arguments of kernels that convert a row of x into records.
type recordArgs struct {
	codes, sums, scales, to unsafe.Pointer
	stride                  int // bytes between records
	scale                   int // bytes between scales of two blocks
	blocks                  int
	raised                  int // log2 of the number that codes of runs of 32 are raised by, or 0 to keep sums
	floats                  int // 1 if sums become float32
	order                   int // order in which codes are written: of sixteen orderValues ..., of 64 fillOctets ...
}

// panelDotArgs are the arguments of kernels that multiply rows of x by a panel.
type panelDotArgs struct {
	panel, x, y unsafe.Pointer
	shift       int // log2 of the factor by which codes are raised
	count       int // groups of rows that are left, one for each pass of the kernel; the kernel decrements it
	pairs       int // number of pairs of blocks of 32 values, for formats with such blocks
}

// Orders of sixteen codes, as bytes of a table of the kernels: one after the other, or as in planes, where each dword
// belongs to a plane; see _asm/blockgrid.go.
const (
	orderValues = 16 * iota
	orderOctets
	orderQuads
)

// Orders of 64 codes of records for the panels of byteFill kernels; see _asm/bytefill.go.
const (
	fillOctets = 64 * iota
	fillHalves
	fillQuads
)

const (
	panelBytes  = 5760
	recordBytes = 320
	// leastPanelRows is the minimum number of rows of x for which a panel is filled.
	leastPanelRows = blockRowsOnce + 1
	// mostPanelRows is the maximum number of rows whose records exist at one time, so that they stay in the L2 cache.
	mostPanelRows = 64
)

// panelProduct holds the kernels that multiply weights of one format by several rows of x.
type panelProduct struct {
	unpack     func(*blockArgs)
	fill       func(*blockArgs) // fills panels without plain blocks, or nil
	grid       unsafe.Pointer   // lookup table of unpack, or nil
	planes     bool             // codes of plain blocks are in planes
	order      int              // order of codes
	dot8, dot4 func(*panelDotArgs)
	records    func(*recordArgs)
	started    bool // records have initial sums of runs: sums of x times -2^shift
	mins       bool
	shift      int
}

// panelOf returns the kernels for a format and rows of x with their kind of planes, or nil for formats without panels.
func panelOf(f block.Format, x *BlockRows) *panelProduct {
	if p := bytePanels[f]; p != nil && x.planes == bytePlanes {
		return p
	}
	if p := &panels[f]; p.dot8 != nil {
		return p
	}
	return nil
}

var panels = func() (list [32]panelProduct) {
	for f, p := range pairPanels {
		p.dot8, p.dot4 = pairDot8, pairDot4
		if p.mins {
			p.dot8, p.dot4 = pairDot8M, pairDot4M
		}
		p.records = recordsavx512
		list[f] = p
	}
	for _, f := range block.Formats() {
		if f.Values() != 256 {
			continue
		}
		p := panelProduct{unpack: unpackers[f].wide, dot8: panelDot8x8, dot4: panelDot4x8, shift: 6,
			records: recordsavx512}
		switch f {
		case block.Q2_K: // products of at most 3 times 15
			p.fill, p.dot8, p.dot4 = laneFillQ2K, panelDot8x1Mins, panelDot4x1Mins
		case block.Q4_K:
			p.fill, p.dot8, p.dot4 = laneFillQ4K, panelDot8x8Mins, panelDot4x8Mins
		case block.Q5_K:
			p.fill, p.dot8, p.dot4 = laneFillQ5K, panelDot8x8Mins, panelDot4x8Mins
		case block.Q6_K:
			p.unpack, p.dot8, p.dot4 = unpackQ6Kavx512, panelDot8x16, panelDot4x16
		case block.Q3_K:
			p.fill, p.dot8, p.dot4, p.shift = laneFillQ3K, panelDot8x16, panelDot4x16, 2
		case block.IQ2_XS, block.IQ2_S, block.IQ1_M:
			p.dot8, p.dot4 = panelDot8x16, panelDot4x16
		case block.TQ1_0, block.TQ2_0: // the scales of these formats are 1
			p.dot8, p.dot4 = panelDot8x1, panelDot4x1
		case block.IQ4_XS:
			p.fill, p.shift = laneFillIQ4XS, 7
		}
		if g := grids[f]; g != nil && g.unpack != nil {
			p.unpack, p.planes, p.grid = g.unpack, true, unsafe.Pointer(&g.points[0])
			p.order = g.order()
		} else {
			p.grid = gridOf(f)
		}
		list[f] = p
	}
	return list
}()

// pairPanels are the formats with blocks of 32 values, whose panels are filled directly from the packed blocks.
var pairPanels = map[block.Format]panelProduct{
	block.Q8_0:   {unpack: pairPanelQ80, shift: 7},
	block.Q4_0:   {unpack: pairPanelQ40, shift: 3},
	block.MXFP4:  {unpack: pairPanelMXFP4, shift: 4},
	block.Q4_1:   {unpack: pairPanelQ41, mins: true},
	block.Q5_0:   {unpack: pairPanelQ50, shift: 4},
	block.Q5_1:   {unpack: pairPanelQ51, mins: true},
	block.IQ4_NL: {unpack: pairPanelIQ4NL, shift: 7},
}

// bytePanels are the panels of processors with byte permutations, for x in bytePlanes.
var bytePanels = func() map[block.Format]*panelProduct {
	list := map[block.Format]*panelProduct{}
	for f, p := range map[block.Format]panelProduct{
		block.IQ2_XXS: {fill: byteFillIQ2XXS, order: fillOctets},
		block.IQ2_XS:  {fill: byteFillIQ2XS, order: fillHalves},
		block.IQ2_S:   {fill: byteFillIQ2S, order: fillHalves},
		block.IQ3_XXS: {fill: byteFillIQ3XXS, order: fillQuads},
		block.IQ3_S:   {fill: byteFillIQ3S, order: fillQuads},
	} {
		p.grid, p.records, p.shift = unsafe.Pointer(&byteGrids[f].bytes[0]), byteRecordsavx512, 6
		if p.order == fillHalves { // runs of 16 values
			p.dot8, p.dot4 = panelDot8x16, panelDot4x16
		} else {
			p.dot8, p.dot4, p.started = panelDot8x8Started, panelDot4x8Started, true
		}
		list[f] = &p
	}
	return list
}()

// mulPanels multiplies rows of x by weights that are unpacked into panels of sixteen rows.
func mulPanels(c BlockCut, f block.Format, w []byte, ldw int, p *panelProduct) {
	s := blockScratches.get()
	defer releaseBlocks(s)
	for m := c.M0; m < c.M1; m += mostPanelRows {
		part := c
		part.M0, part.M1, part.Y = m, min(c.M1, m+mostPanelRows), c.Y[(m-c.M0)*c.Ldy:]
		s.mulPanels(&part, f, w, ldw, p)
	}
}

func (s *blockScratch) mulPanels(c *BlockCut, f block.Format, w []byte, ldw int, p *panelProduct) {
	s.ready(c)
	rows := (c.M1 - c.M0 + 3) / 4 * 4
	if n := rows * lineBytes; len(s.results) < n {
		s.results = alignedBytes(n)
	}
	s.fillRecords(c, rows, p)
	s.rows.grid, s.rows.trees = p.grid, s.tiles.sums
	if p.fill != nil {
		eachLanes(c.N, ldw, func(j, skip, run int) {
			clear(s.results[:rows*lineBytes])
			s.lanePanels(c, f, w, ldw, p, j, run, rows)
			for m := range c.M1 - c.M0 {
				c.storeLanes(s.results[m*lineBytes:], m, j, skip, run)
			}
		})
		return
	}
	for j := 0; j < c.N; j += tileSide {
		clear(s.results[:rows*lineBytes])
		if f.Values() == 32 {
			s.pairPanels(c, f, w, ldw, p, j, rows)
		} else {
			s.plainPanels(c, f, w, ldw, p, j, rows)
		}
		for m := range c.M1 - c.M0 {
			to := c.Y[m*c.Ldy+j:][:min(tileSide, c.N-j)]
			for r, v := range unsafe.Slice((*float32)(at(s.results, m*lineBytes)), len(to)) {
				if c.Add {
					v += to[r]
				}
				to[r] = v
			}
		}
	}
}

// plainPanels adds the products of sixteen weight rows, starting at row j, to the results. It unpacks the weights to
// plain blocks of 256.
func (s *blockScratch) plainPanels(c *BlockCut, f block.Format, w []byte, ldw int, p *panelProduct, j, rows int) {
	const pitch = plainDepth / 256 * plainBytes
	a := &s.rows
	a.panel = at(s.panel, 0)
	s.plainPanel = plainPanelArgs{panel: at(s.panel, tileSide*pitch), pitch: pitch,
		planes: flag(p.planes)}
	a.take(c, f, w, ldw, j, 0, tileSide)
	a.ahead, a.last = tileSide*ldw, 0
	for k := 0; k < c.X.k; k += plainDepth {
		blocks := min(plainDepth, c.X.k-k) / 256
		a.steps, a.count, a.second = blocks, tileSide, pitch-blocks*plainBytes
		runKernel(p.unpack, a)
		a.last += blocks * f.Bytes()
		for b := range blocks {
			s.plainPanel.plain = at(s.panel, b*plainBytes)
			runKernel(plainPanelavx512, &s.plainPanel)
			s.dotPanel(p, s.plainPanel.panel, rows, (k/256+b)*rows*recordBytes, 0)
		}
	}
}

// pairPanels is plainPanels for formats with blocks of 32, which are not unpacked to plain blocks.
func (s *blockScratch) pairPanels(c *BlockCut, f block.Format, w []byte, ldw int, p *panelProduct, j, rows int) {
	a := &s.rows
	a.panel = at(s.panel, 0)
	for k := 0; k < c.X.k; k += 256 {
		a.take(c, f, w, ldw, j, k, tileSide)
		a.ahead = tileSide * ldw
		a.stepsOf(f, min(256, c.X.k-k))
		pairs := a.steps
		runKernel(p.unpack, a)
		s.dotPanel(p, a.panel, rows, k/256*rows*recordBytes, pairs)
	}
}

// fillRecords converts the rows of x into records; missing rows become zeros.
func (s *blockScratch) fillRecords(c *BlockCut, rows int, p *panelProduct) {
	blocks, scale := (c.X.k+255)/256, 4*256/c.X.group
	if n := blocks * rows * recordBytes; len(s.records) < n {
		s.records = alignedBytes(n + n/4)
	}
	for r := range rows {
		if r >= c.M1-c.M0 {
			for b := range blocks {
				clear(s.records[(b*rows+r)*recordBytes:][:recordBytes])
			}
			continue
		}
		x := c.X.row(c.X.unit(c.M0 + r))
		s.record = recordArgs{codes: at(x.codes, 0), sums: at(x.sums, 0), scales: at(x.scales, 0),
			to: at(s.records, r*recordBytes), stride: rows * recordBytes, scale: scale, blocks: blocks,
			order: p.order}
		if c.X.group == 32 || p.started {
			s.record.raised, s.record.floats = p.shift, flag(p.mins)
		}
		runKernel(p.records, &s.record)
	}
}

// dotPanel adds the products of a panel and blocks of the rows of x to the results. The records of these blocks begin
// at byte records.
func (s *blockScratch) dotPanel(p *panelProduct, panel unsafe.Pointer, rows, records, pairs int) {
	a := &s.panelDot
	*a = panelDotArgs{panel: panel, shift: p.shift, pairs: pairs}
	if eights := rows / 8; eights > 0 {
		a.x, a.y, a.count = at(s.records, records), at(s.results, 0), eights
		runKernel(p.dot8, a)
	}
	if rest := rows % 8; rest > 0 {
		from := rows - rest
		a.x, a.y, a.count = at(s.records, records+from*recordBytes), at(s.results, from*lineBytes), 1
		runKernel(p.dot4, a)
	}
}
