//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// A call of the streaming kernel takes streamRows rows of at most streamBlocks
// blocks of codes: 8192, a quarter of a megabyte.
const (
	streamRows   = blockW
	streamBlocks = 64
)

// stream multiplies one tile of columns by e4m3 weights that are read once.
// Whole blocks of 32 rows by 128 columns go through the streaming kernel; what
// is left over goes by the panel, in the same order of sums.
func (ts *tileScratch) stream(c *Cut, w *panelWeights) {
	whole := w.k / scaleBlock * scaleBlock
	for j := 0; j < c.N; {
		b := tileBlock{m: c.M0, end: c.M1, row: j, rows: w.block(j, c.N-j), sums: ts.sums, folded: w.folded(j)}
		from := 0
		if b.rows == streamRows {
			clear(ts.sums[:2*tileBytes])
			for from < whole {
				from += ts.streamDepth(c, w, b, from, min(whole-from, streamBlocks*scaleBlock))
			}
		}
		for k := from; k < w.k; k += tileK {
			b.k, b.depth = k, min(tileK, w.k-k)
			ts.fill.ahead = tileK
			w.fill(ts, j, b.rows, k, b.depth, b.folded)
			ts.panelTimes(c, w, b)
		}
		ts.foldBlock(c, b)
		j += b.rows
	}
}

// streamDepth adds the columns [from, from+depth) of a whole block of rows to
// its sums and returns depth.
func (ts *tileScratch) streamDepth(c *Cut, w *panelWeights, b tileBlock, from, depth int) int {
	a, x := &ts.flow, c.X
	for t := range 8 {
		a.shapes.set(t, tileSide, x.lineBytes())
	}
	a.shapes.set(tileW, tileSide, pairLanes)
	a.w, a.ldw, a.ahead = at(w.b, b.row*w.ld+from), w.ld, streamRows*w.ld
	a.x = at(x.mem[:cap(x.mem)], c.M0/x.rows*x.groupBytes()+from/stepDepth*x.stepBytes())
	a.ldx, a.partX = x.lineBytes(), x.partBytes()
	a.sums, a.panel, a.block = at(b.sums, 0), at(ts.panel, 0), at(ts.block, 0)
	a.blocks, a.tables, a.scales = depth/scaleBlock, unsafe.Pointer(&ts.tables), nil
	scales := w.scale.row(b.row)[from/scaleBlock:][:a.blocks]
	if !b.folded {
		a.scales = at(scales, 0)
	}
	for i, s := range scales {
		power := 0
		if b.folded {
			power = math.Ilogb(float64(s))
		}
		ts.tables[i] = unsafe.Pointer(&tablesFP8()[power+maxPower])
	}
	runStream(a)
	return depth
}
