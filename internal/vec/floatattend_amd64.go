//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

const (
	floatHeads = 16 // heads that the kernels process together
	floatRows  = 64 // rows between two updates of the softmax
	stripDepth = 64 // elements of every row that are widened at a time
	stripKeys  = 66 // floatRows rounded up to whole tiles of keys; the maximum of all tiers
	stripSize  = stripKeys * stripDepth

	scaleBytes = 16 // bytes of the scales of a RowBlock
)

// floatArgs are the arguments of kernels that multiply 16 heads by a strip of n rows. Lines of the rows at the offsets
// in ahead are prefetched, one at a time; the kernels advance ahead and line.
type floatArgs struct {
	memory, at           unsafe.Pointer
	offset, scaleAt      int // bytes in a row: where the strip begins, and its scale
	keys, q, scores, out unsafe.Pointer
	state                unsafe.Pointer // a floatState
	n, tiles, heads      int
	scale                float32
	ahead                unsafe.Pointer // address of the offset of the row that contains line
	line, lineEnd        uintptr
	lineStep             int        // 0 after the last row
	rowsAhead, rowBytes  int        // number of rows left to prefetch, this one included; bytes of a row
	codes                [16]uint32 // e4m3, out: largest codes read, four to a word, without signs
}

// floatState is the state of the softmax of 16 heads.
type floatState struct {
	top, sum [floatHeads]float32
	keep     [floatHeads]float32 // factor of the sums before the current rows
}

// floatKernels are the kernels of attention in float32.
type floatKernels struct {
	fill                    [floatFormats]func(*floatArgs)
	scores, softmax, values func(*floatArgs)
	scoreKeys               int // keys of a tile of scores
	// again lists the formats whose rows are widened again for the values. If widening a row takes few instructions,
	// that is faster than reading 147 KiB of widened rows from the L2 cache.
	again [floatFormats]bool
}

// floatVectors is FloatAttend in registers, in blocks of 16 heads. For the arrays see _asm/floatattend.go.
type floatVectors struct {
	kernels *floatKernels
	width   int
	heads   int
	queries [][]float32 // queries [width, 16], for each row and block of heads
	blocks  []floatBlock
	keys    []float32 // strips [66, 64]
	args    floatArgs
}

// floatBlock is 16 heads: the scores of the current rows, and the sums over all rows so far.
type floatBlock struct {
	scores []float32 // [66, 16]
	out    []float32 // [16, 512]
	floatState
}

func (s *isa) newFloatAttend(width int) floatAttend {
	return &floatVectors{kernels: &s.float, width: width, keys: onLines[float32](width / stripDepth * stripSize)}
}

func (t *floatVectors) query(i int, q []float32, heads int, scale float32) {
	t.heads, t.args.scale = heads, scale
	n := (heads + floatHeads - 1) / floatHeads
	for len(t.blocks) < n {
		t.blocks = append(t.blocks, floatBlock{scores: onLines[float32](stripKeys * floatHeads),
			out: onLines[float32](floatHeads * LatentDim)})
	}
	for len(t.queries) <= i {
		t.queries = append(t.queries, nil)
	}
	if len(t.queries[i]) < n*floatHeads*t.width {
		t.queries[i] = onLines[float32](n * floatHeads * t.width)
	}
	for b := range n {
		first := b * floatHeads
		interleave(t.queries[i][first*t.width:][:floatHeads*t.width], q[first*t.width:], t.width,
			min(heads-first, floatHeads))
	}
}

// interleave writes heads [heads, width] to the columns of out [width, 16]. Columns without a head are zero. Four heads
// are written together, so that each line of out is fetched a quarter as often.
func interleave(out, heads []float32, width, n int) {
	if n < floatHeads {
		clear(out)
	}
	h := 0
	for ; h+4 <= n; h += 4 {
		h0, h1 := heads[h*width:][:width], heads[(h+1)*width:][:width]
		h2, h3 := heads[(h+2)*width:][:width], heads[(h+3)*width:][:width]
		for k, v := range h0 {
			to := out[k*floatHeads+h:][:4]
			to[0], to[1], to[2], to[3] = v, h1[k], h2[k], h3[k]
		}
	}
	for ; h < n; h++ {
		for k, v := range heads[h*width:][:width] {
			out[k*floatHeads+h] = v
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
	a, k := &t.args, t.kernels
	a.memory, a.rowBytes = at(memory, 0), rowSize(format, t.width)
	again := k.again[format]
	for first := 0; first < len(places); first += floatRows {
		now, next := places[first:min(first+floatRows, len(places))], ahead
		if first+floatRows < len(places) {
			next = places[first+floatRows:]
		}
		a.at, a.n, a.tiles = at(now, 0), len(now), (len(now)+k.scoreKeys-1)/k.scoreKeys
		t.fetch(next)
		for b := range blocks {
			clear(blocks[b].scores)
		}
		for c := 0; c < t.width; c += stripDepth {
			a.keys = t.strip(c, again)
			t.fill(memory, now, c, format)
			for b := range blocks {
				a.q = at(t.queries[i], (b*t.width+c)*floatHeads)
				a.scores = at(blocks[b].scores, 0)
				runKernel(k.scores, a)
			}
		}
		for b := range blocks {
			a.scores, a.state = at(blocks[b].scores, 0), unsafe.Pointer(&blocks[b].floatState)
			runKernel(k.softmax, a)
		}
		for c := 0; c < LatentDim; c += stripDepth {
			if a.keys = t.strip(c, again); again {
				t.fill(memory, now, c, format)
			}
			for b := range blocks {
				a.scores, a.state = at(blocks[b].scores, 0), unsafe.Pointer(&blocks[b].floatState)
				a.out, a.heads = at(blocks[b].out, c), t.heads-b*floatHeads
				runKernel(k.values, a)
			}
		}
	}
	*a = floatArgs{scale: a.scale}
}

// strip returns the memory of the strip that begins at element c: all strips are kept for the values, unless the rows
// are widened again.
func (t *floatVectors) strip(c int, again bool) unsafe.Pointer {
	if again {
		c = 0
	}
	return at(t.keys, c/stripDepth*stripSize)
}

// fill widens the elements [c, c+64) of rows to the strip.
func (t *floatVectors) fill(memory []byte, places []int, c int, format RowFormat) {
	a := &t.args
	switch {
	case format == RowBlock && c >= LatentDim:
		a.offset, format = LatentDim+scaleBytes+2*(c-LatentDim), RowBF16
	case format == RowBlock:
		a.offset, a.scaleAt = c, LatentDim+4*(c/scaleBlock)
	default:
		a.offset = c * rowSize(format, t.width) / t.width
	}
	runKernel(t.kernels.fill[format], a)
	if (format == RowRaw || format == RowBlock) && sawNaN(&a.codes) {
		keys := unsafe.Slice((*float32)(a.keys), stripSize)
		for k, p := range places {
			restoreNaN(keys[k*stripDepth:][:stripDepth], memory[p+c:][:stripDepth])
		}
	}
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

func (t *floatVectors) result(out, top, sum []float32) {
	for h := range top {
		b, i := &t.blocks[h/floatHeads], h%floatHeads
		copy(out[h*LatentDim:][:LatentDim], b.out[i*LatentDim:])
		top[h], sum[h] = b.top[i], b.sum[i]
	}
}
