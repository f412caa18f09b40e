//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

const (
	floatHeads = 16 // heads that the kernels take together
	floatRows  = 64 // rows between two updates of the softmax
	stripDepth = 32 // elements of a row in one strip
	stripKeys  = 66 // whole tiles of keys of every tier
	stripSize  = stripKeys * stripDepth
)

// floatArgs: 16 heads by n rows. Lines of the rows at the offsets in ahead are prefetched, one at a time; the kernels
// advance the cursor.
type floatArgs struct {
	memory, at              unsafe.Pointer
	keys, q, scores, out    unsafe.Pointer
	n, tiles, strips, heads int
	ahead                   unsafe.Pointer // offset of the row that line is in
	line, lineEnd           uintptr
	lineStep                int // 0 after the last row
	rowsAhead, rowBytes     int // rows left with this one, and their size
	scale                   float32
	top, sum, keep          [floatHeads]float32
	codes                   [16]uint32 // e4m3, out: largest codes read, four to a word, without signs
}

// floatKernels are the kernels of attention in float32.
type floatKernels struct {
	fill                    [floatFormats]func(*floatArgs)
	scores, softmax, values func(*floatArgs)
	scoreKeys               int // keys of a tile of scores
}

// floatVectors is FloatAttend in registers, in blocks of 16 heads. For the arrays see _asm/floatattend.go.
type floatVectors struct {
	kernels *floatKernels
	width   int
	heads   int
	queries [][]float32 // of every row: for every block of heads [width, 16]
	blocks  []floatBlock
	keys    []float32 // [width/32 strips, 66, 32]
	scores  []float32 // [66, 16]
	args    floatArgs
}

// floatBlock is 16 heads: their sums over all rows so far.
type floatBlock struct {
	out      []float32 // [16, 512]
	top, sum [floatHeads]float32
}

func (s *isa) newFloatAttend(width int) floatAttend {
	return &floatVectors{kernels: &s.float, width: width, keys: onLines[float32](width / stripDepth * stripSize),
		scores: onLines[float32](stripKeys * floatHeads)}
}

func (t *floatVectors) query(i int, q []float32, heads int, scale float32) {
	t.heads, t.args.scale = heads, scale
	n := (heads + floatHeads - 1) / floatHeads
	for len(t.blocks) < n {
		t.blocks = append(t.blocks, floatBlock{out: onLines[float32](floatHeads * LatentDim)})
	}
	for len(t.queries) <= i {
		t.queries = append(t.queries, nil)
	}
	if len(t.queries[i]) < n*floatHeads*t.width {
		t.queries[i] = onLines[float32](n * floatHeads * t.width)
	}
	for h := range n * floatHeads {
		to := t.queries[i][h/floatHeads*floatHeads*t.width+h%floatHeads:]
		if h >= heads {
			for k := range t.width {
				to[k*floatHeads] = 0
			}
			continue
		}
		for k, v := range q[h*t.width:][:t.width] {
			to[k*floatHeads] = v
		}
	}
}

func (t *floatVectors) attend(i int, memory []byte, places, ahead []int, format RowFormat) {
	blocks := t.blocks[:(t.heads+floatHeads-1)/floatHeads]
	for b := range blocks {
		for h := range floatHeads {
			blocks[b].top[h], blocks[b].sum[h] = float32(math.Inf(-1)), 0
		}
		clear(blocks[b].out)
	}
	a := &t.args
	a.memory, a.keys, a.scores = at(memory, 0), at(t.keys, 0), at(t.scores, 0)
	a.strips, a.rowBytes = t.width/stripDepth, rowSize(format, t.width)
	for first := 0; first < len(places); first += floatRows {
		n := min(floatRows, len(places)-first)
		a.at, a.n, a.tiles = at(places, first), n, (n+t.kernels.scoreKeys-1)/t.kernels.scoreKeys
		runKernel(t.kernels.fill[format], a)
		if sawNaN(&a.codes) {
			t.restoreNaN(memory, places[first:][:n], format)
		}
		next := places[first+n:]
		if len(next) == 0 {
			next = ahead
		}
		t.fetch(next)
		for b := range blocks {
			block := &blocks[b]
			a.q, a.out, a.heads = at(t.queries[i], b*floatHeads*t.width), at(block.out, 0), t.heads-b*floatHeads
			a.top, a.sum = block.top, block.sum
			runKernel(t.kernels.scores, a)
			runKernel(t.kernels.softmax, a)
			runKernel(t.kernels.values, a)
			block.top, block.sum = a.top, a.sum
		}
	}
	*a = floatArgs{scale: a.scale}
}

// fetch sets the rows that the kernels prefetch.
func (t *floatVectors) fetch(rows []int) {
	a := &t.args
	rows = rows[:min(len(rows), floatRows)]
	a.rowsAhead = len(rows)
	if len(rows) == 0 {
		a.line, a.lineEnd, a.lineStep = uintptr(unsafe.Pointer(a)), math.MaxInt, 0
		return
	}
	first := uintptr(a.memory) + uintptr(rows[0])
	a.ahead, a.line, a.lineEnd, a.lineStep = at(rows, 0), first&^63, first+uintptr(a.rowBytes), 64
}

// restoreNaN writes NaN to the strips where rows have a NaN code.
func (t *floatVectors) restoreNaN(memory []byte, places []int, format RowFormat) {
	coded := t.width
	if format == RowBlock {
		coded = LatentDim
	}
	for k, p := range places {
		for c, code := range memory[p:][:coded] {
			if isNaN(code) {
				t.keys[c/stripDepth*stripSize+k*stripDepth+c%stripDepth] = float32(math.NaN())
			}
		}
	}
}

func (t *floatVectors) result(out, top, sum []float32) {
	for h := range top {
		b, i := &t.blocks[h/floatHeads], h%floatHeads
		copy(out[h*LatentDim:][:LatentDim], b.out[i*LatentDim:])
		top[h], sum[h] = b.top[i], b.sum[i]
	}
}
