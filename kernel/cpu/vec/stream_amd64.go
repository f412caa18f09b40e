//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// A call of a streaming kernel takes streamRows rows of at most streamBlocks
// blocks of codes: 8192, half a megabyte.
const (
	streamRows   = 2 * blockW
	streamBlocks = 64
	// streamRun is what a fetching place moves on with 32 rows.
	streamRun = 256
	// skewAhead keeps the eight fetching places apart within a page: rows of
	// 4096 weights, as they are common, would put all of them at the same place of
	// theirs and so in the same banks of memory. The bytes it leaves out, one in
	// a hundred, the processor fetches by itself.
	skewAhead = 9 * 64
)

// stream multiplies few groups of columns by e4m3 weights that are read once from
// memory: after the first group they are in the second cache.
func (ts *tileScratch) stream(c *Cut, w *panelWeights) {
	for j := 0; j < c.N; {
		rows := 0
		for m := c.M0; m < c.M1; m += c.X.rows {
			group := *c
			group.M0, group.M1, group.Y = m, min(m+c.X.rows, c.M1), c.Y[(m-c.M0)*c.Ldy:]
			rows = ts.streamGroup(&group, w, j)
		}
		j += rows
	}
}

// streamGroup multiplies one group of columns by weights from row j on and returns
// how many rows of them. Whole blocks of 64 rows by 128 columns go through a
// streaming kernel; what is left over goes by the panel, in the same order of sums.
func (ts *tileScratch) streamGroup(c *Cut, w *panelWeights, j int) int {
	rows, from := w.block(j, c.N-j), 0
	if w.streams(j, c.N-j) {
		rows = streamRows
		clear(ts.sums[:rows/tileSide*c.X.tiles()*tileBytes])
		from = ts.streamRows(c, w, j)
	}
	for r := 0; r < rows; r += blockW {
		b := tileBlock{m: c.M0, end: c.M1, row: j + r, rows: min(blockW, rows-r), sums: ts.sums[r/tileSide*c.X.tiles()*tileBytes:], folded: w.folded(j)}
		ts.fill.ahead = tileK
		for k := from; k < w.k; k += tileK {
			b.k, b.depth = k, min(tileK, w.k-k)
			w.fill(ts, b.row, b.rows, k, b.depth, b.folded)
			ts.panelTimes(c, w, b)
		}
		ts.foldBlock(c, b)
	}
	return rows
}

// streams reports whether the rows from row on are enough for a streaming
// kernel and share their scales.
func (w *panelWeights) streams(row, left int) bool {
	return left >= streamRows && (w.scale.row0+row)%scaleBlock <= scaleBlock-streamRows
}

// streamRows multiplies the whole blocks of streamRows rows from row j on and
// returns the columns they have.
func (ts *tileScratch) streamRows(c *Cut, w *panelWeights, j int) int {
	whole, folded := w.k/scaleBlock*scaleBlock, w.folded(j)
	const most = streamBlocks * scaleBlock
	for from := 0; from < whole; from += most {
		depth := min(whole-from, most)
		// What comes next is further along, or the rows below. After the last ones it is what is here already.
		next, run := uintptr(at(w.b, j*w.ld))+uintptr(from+depth), whole-from-depth
		if run == 0 {
			next, run = uintptr(at(w.b, j*w.ld)), whole
			if j+streamRows < c.N {
				next += uintptr(streamRows * w.ld)
			}
		}
		ts.fetchAhead(next, w.ld, min(run, most))
		ts.streamDepth(c, w, j, from, depth, folded)
	}
	return whole
}

// fetchAhead names the first run bytes of streamRows rows, ld bytes apart, as
// what the kernel fetches. Memory likes eight places that move on line by line
// better than 64 rows in step.
func (ts *tileScratch) fetchAhead(first uintptr, ld, run int) {
	const rows = streamRows / 8 // of a place
	a := &ts.flow
	a.ahead, a.ldAhead = first, rows*ld+skewAhead
	a.backAhead = 64 - 4*a.ldAhead
	a.runAhead = (run + streamRun - 1) / streamRun * streamRun
	a.leftAhead, a.jumpAhead = a.runAhead, ld-a.runAhead
}

// streamDepth adds the columns [from, from+depth) of streamRows rows to their
// sums.
func (ts *tileScratch) streamDepth(c *Cut, w *panelWeights, j, from, depth int, folded bool) {
	a, x := &ts.flow, c.X
	for t := range 8 {
		a.shapes.set(t, tileSide, x.lineBytes())
	}
	a.shapes.set(tileW, tileSide, pairLanes)
	a.shapes.set(tileW+1, tileSide, pairLanes)
	a.w, a.ldw, a.lower = at(w.b, j*w.ld+from), w.ld, blockW*w.ld
	a.x = at(x.mem[:cap(x.mem)], c.M0/x.rows*x.groupBytes()+from/stepDepth*x.stepBytes())
	a.panel, a.blocks, a.scales = at(ts.panel, 0), depth/scaleBlock, unsafe.Pointer(&ts.scales[1])
	ts.streamScales(w.scale.row(j)[from/scaleBlock:][:a.blocks], folded)
	runStream(streamKernels[x.rows][flag(!folded)], a)
}

// streamScales tells the kernel the scales of its blocks.
func (ts *tileScratch) streamScales(scales []float32, folded bool) {
	tables := tablesFP8()
	for i, s := range scales {
		e := &ts.scales[1+i]
		e.scale, e.power, e.table = s, 0, unsafe.Pointer(&tables[maxPower])
		if folded {
			power := math.Ilogb(float64(s))
			e.power, e.table = uint32(uint16(power<<7))*0x10001, unsafe.Pointer(&tables[power+maxPower])
		}
	}
}

// streamKernels is by rows of a group; scales in the weights, or apart.
var streamKernels = map[int]*[2]func(*streamArgs){
	1:         {stream1, stream1scaled},
	fewRows:   {stream4, stream4scaled},
	halfRows:  {stream8, stream8scaled},
	GroupRows: {stream16, stream16scaled},
}
