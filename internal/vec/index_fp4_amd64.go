//go:build !purego

package vec

import "unsafe"

// indexFP4Args are the arguments of kernels that widen FP4 keys.
type indexFP4Args struct {
	codes     unsafe.Pointer // [keys, 64]
	exponents unsafe.Pointer // [keys, 4] e8m0
	scales    unsafe.Pointer // [keys, 4] float32, for kernels that do not read exponents
	wide      unsafe.Pointer
	keys      int
}

// fp4Columns scores FP4 keys with AVX-512, a key in each lane.
type fp4Columns struct {
	columnScores
	args indexFP4Args
	ones [indexBlock]float32 // the keys have no further scale
}

func newFP4Columns(s *isa) indexFP4Scorer {
	c := &fp4Columns{columnScores: columnScores{isa: s}}
	for i := range c.ones {
		c.ones[i] = 1
	}
	return c
}

func (c *fp4Columns) scores(scores, q, w []float32, keys *IndexBlockFP4) {
	a := &c.args
	for first := 0; first < len(scores); first += indexBlock {
		lines, widen := c.block(first / indexBlock)
		if widen {
			*a = indexFP4Args{codes: at(keys.codes[:], first*IndexDim/2),
				exponents: at(keys.exponents[:], first*IndexDim/GroupFP4), wide: at(lines, 0)}
			runKernel(c.isa.indexFP4, a)
		}
		c.score(scores[first:min(first+indexBlock, len(scores))], q, w, at(c.ones[:], 0), lines)
	}
	*a = indexFP4Args{}
}

// fp4Rows scores FP4 keys with AVX2: keys are widened to rows, which are multiplied by the heads. Elements of keys and
// heads are in the order of the kernels for e2m1 weights.
type fp4Rows struct {
	wideKeys
	isa      *isa
	q        []float32                                 // [heads, IndexDim], ordered
	products []float32                                 // [heads, indexBlock]
	scales   [indexBlock * IndexDim / GroupFP4]float32 // of the keys that are widened
	args     indexFP4Args
}

func newFP4Rows(s *isa) indexFP4Scorer { return &fp4Rows{isa: s} }

func (r *fp4Rows) scores(scores, q, w []float32, keys *IndexBlockFP4) {
	s := r.isa
	sc := takeScratch()
	defer releaseScratch(sc)
	r.q, r.products = sized(&r.q, len(q)), sized(&r.products, len(w)*indexBlock)
	v := &sc.vec
	v.dst, v.a, v.steps = at(r.q, 0), at(q, 0), len(q)/(8*s.vec.lanes)
	runKernel(s.nibbles.order, v)
	for first := 0; first < len(scores); first += indexBlock {
		rows, widen := r.block(first / indexBlock)
		if widen {
			r.widen(sc, rows, keys, first)
		}
		s.scoreHeads(sc, scores[first:min(first+indexBlock, len(scores))], r.products, r.q, w,
			&weights{format: formatF32, f32: rows, ld: IndexDim})
	}
}

// widen widens the keys of the block that begins at key first.
func (r *fp4Rows) widen(sc *scratch, rows []float32, keys *IndexBlockFP4, first int) {
	v, a := &sc.vec, &r.args
	v.dst, v.a, v.steps = at(r.scales[:], 0), at(keys.exponents[:], first*IndexDim/GroupFP4),
		len(r.scales)/r.isa.vec.lanes
	runKernel(r.isa.nibbles.scales, v)
	*a = indexFP4Args{codes: at(keys.codes[:], first*IndexDim/2), scales: at(r.scales[:], 0), wide: at(rows, 0),
		keys: indexBlock}
	runKernel(r.isa.indexFP4, a)
	*a = indexFP4Args{}
}
