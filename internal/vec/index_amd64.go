//go:build !purego

package vec

import (
	"math"
	"unsafe"
)

// indexBlock is the number of keys that are scored together, so that their products with every head stay in the L2
// cache.
const indexBlock = 64

// indexScratch is the memory of one query. It grows to the maximum number of heads so far.
type indexScratch struct {
	q        []float32 // [heads, IndexDim] widened
	products []float32 // [heads, indexBlock]
}

var indexScratches recycler[indexScratch]

func (is *indexScratch) grow(heads int) {
	if cap(is.products) < heads*indexBlock {
		is.q = make([]float32, heads*IndexDim)
		is.products = make([]float32, heads*indexBlock)
	}
	is.q, is.products = is.q[:heads*IndexDim], is.products[:heads*indexBlock]
}

// indexScores multiplies every head by a block of keys in dot form, and then adds the rectified products of the heads.
// Adding up the lanes of a register takes a third of the time of a product, because a product has only 128 elements.
func (s *isa) indexScores(scores []float32, q []byte, w []float32, keys, scales []byte) {
	is := indexScratches.get()
	defer indexScratches.put(is)
	sc := takeScratch()
	defer releaseScratch(sc)
	is.grow(len(w))
	s.vec.widenWith(sc, is.q, q, blocks{unitScale[:], oneBlock})
	for first := 0; first < len(scores); first += indexBlock {
		n := min(indexBlock, len(scores)-first)
		codes := weights{format: formatFP8, b: keys[first*IndexDim:][:n*IndexDim], ld: IndexDim,
			scale: FP8Blocks{Scale: unitScale[:], Rows: oneBlock, Cols: oneBlock}}
		s.scoreHeads(sc, scores[first:][:n], is.products, is.q, w, &codes)
		s.scaleScores(sc, scores[first:][:n], scales[4*first:])
	}
}

// scoreHeads multiplies every head of q by len(scores) keys, at most indexBlock, and adds the rectified products.
func (s *isa) scoreHeads(sc *scratch, scores, products, q, w []float32, keys *weights) {
	p := product{y: products, ldy: indexBlock, x: q, ldx: IndexDim, m: len(w), n: len(scores), k: IndexDim}
	if len(w) < s.panelMR {
		s.matMulRows(sc, &p, keys)
	} else {
		s.matMulPanels(sc, &p, keys)
	}
	s.addHeads(sc, scores, products, w)
}

// unitScale replaces the scale of keys, which is applied to their scores instead.
var unitScale = [1]float32{1}

// wideKeys holds blocks of keys in float32. A block is widened when a query first needs it, and kept for later queries:
// the conversion costs more than the dot products of a query with few heads.
type wideKeys struct {
	wide int       // number of blocks that are widened
	once bool      // there is one query: blocks are widened in turn to memory that stays in the L1 cache
	mem  []float32 // [IndexBlockKeys/indexBlock, indexBlock*IndexDim]
}

func (k *wideKeys) reset(queries int) { k.wide, k.once = 0, queries == 1 }

// added forgets the widened form of the block that keys from n on are added to.
func (k *wideKeys) added(n int) { k.wide = min(k.wide, n/indexBlock) }

// block returns the memory of block i, and whether the caller must widen the keys.
func (k *wideKeys) block(i int) (mem []float32, widen bool) {
	const size = indexBlock * IndexDim
	if k.mem == nil {
		k.mem = onLines[float32](IndexBlockKeys * IndexDim)
	}
	if k.once {
		return k.mem[:size], true
	}
	widen = i >= k.wide
	k.wide = max(k.wide, i+1)
	return k.mem[i*size:][:size], widen
}

// columnScores scores blocks of keys that are transposed, [IndexDim, indexBlock]. Each lane has one key, and a dot
// product is one running sum.
type columnScores struct {
	wideKeys
	isa  *isa
	last [indexBlock]float32 // scores of a block that is not full
	args indexHeadsArgs
}

// indexHeadsArgs are the arguments of the kernel that scores a block of keys.
type indexHeadsArgs struct {
	q, lines, w    unsafe.Pointer
	scales, scores unsafe.Pointer
	heads          int
}

// score scores a block, or its first keys. There are scales for the whole block.
func (c *columnScores) score(scores, q, w []float32, scales unsafe.Pointer, lines []float32) {
	a := &c.args
	*a = indexHeadsArgs{q: at(q, 0), lines: at(lines, 0), w: at(w, 0), scales: scales, scores: at(c.last[:], 0),
		heads: len(w)}
	if len(scores) == indexBlock {
		a.scores = at(scores, 0)
	}
	runKernel(c.isa.indexHeads, a)
	if len(scores) < indexBlock {
		copy(scores, c.last[:])
	}
	*a = indexHeadsArgs{}
}

// indexColumns holds e4m3 keys. Columns have 2^-8 of the values of keys.
type indexColumns struct {
	columnScores
	keys   [IndexBlockKeys * IndexDim]byte
	halves []float32 // for indexLines
	q      []float32 // [heads, IndexDim], 2^8 of the query
	turn   indexLinesArgs
}

// indexLinesArgs are the arguments of the kernel that widens and transposes a block of keys.
type indexLinesArgs struct {
	keys, lines, halves unsafe.Pointer
	codes               [16]uint32 // out: largest codes read, as in rowsArgs
}

func (c *indexColumns) add(n int, keys []byte) {
	c.added(n)
	end := n*IndexDim + copy(c.keys[n*IndexDim:], keys)
	clear(c.keys[end:][:-end&(indexBlock*IndexDim-1)]) // padding of the last block
}

func (c *indexColumns) scores(scores []float32, q []byte, w []float32, scales []byte) {
	sc := takeScratch()
	defer releaseScratch(sc)
	c.q = sized(&c.q, len(q))
	c.isa.vec.widenWith(sc, c.q, q, blocks{halfUnit[:], oneBlock})
	for first := 0; first < len(scores); first += indexBlock {
		lines, widen := c.block(first / indexBlock)
		if widen {
			c.widen(first/indexBlock, lines)
		}
		c.score(scores[first:min(first+indexBlock, len(scores))], c.q, w, at(scales, 4*first), lines)
	}
}

// halfUnit is the factor of queries, 2^8. Keys in lines are 2^-8 of their values, because codes are converted by way of
// half precision. The factors are powers of two, so they do not change the bits of products.
var halfUnit = [1]float32{256}

// widen converts block i of keys to float32, transposes it, and writes it to lines [IndexDim, indexBlock].
func (c *indexColumns) widen(i int, lines []float32) {
	if c.halves == nil {
		c.halves = onLines[float32](128)
	}
	keys, a := c.keys[i*indexBlock*IndexDim:][:indexBlock*IndexDim], &c.turn
	a.keys, a.lines, a.halves = at(keys, 0), at(lines, 0), at(c.halves, 0)
	runKernel(c.isa.indexLines, a)
	if sawNaN(&a.codes) {
		for n, code := range keys {
			if isNaN(code) {
				lines[n%IndexDim*indexBlock+n/IndexDim] = float32(math.NaN())
			}
		}
	}
}

// addHeads writes Σ_h w[h]·max(0, products[h][s]), h ascending, to scores.
func (s *isa) addHeads(sc *scratch, scores, products, w []float32) {
	v := &sc.vec
	for from := 0; from < len(scores); from += s.vec.lanes {
		clear(v.acc[:])
		// dst advances over the weights, a over the products of one register of keys. A row
		// of products has indexBlock elements, so whole registers fit.
		v.dst, v.a, v.steps = at(w, 0), at(products, from), len(w)
		runKernel(s.vec.kernels.reluAdd, v)
		copy(scores[from:], v.acc[:s.vec.lanes])
	}
}

// scaleScores multiplies scores by the scales of their keys.
func (s *isa) scaleScores(sc *scratch, scores []float32, scales []byte) {
	v, whole := &sc.vec, len(scores)/s.vec.lanes
	if whole > 0 {
		v.dst, v.a, v.b, v.steps, v.s = at(scores, 0), at(scores, 0), at(scales, 0), whole, 1
		runKernel(s.vec.kernels.scaleMul, v)
	}
	for i := whole * s.vec.lanes; i < len(scores); i++ {
		scores[i] *= keyScale(scales, i)
	}
}
