//go:build !purego

package vec

import "sync"

// indexBlock is the keys scored together: their products with every head stay
// in the second cache.
const indexBlock = 64

// indexScratch is the memory of one call. q grows to the largest query seen.
type indexScratch struct {
	q        []float32 // [heads, IndexDim] widened
	products []float32 // [heads, indexBlock]
}

var indexScratches = sync.Pool{New: func() any { return new(indexScratch) }}

// indexScores multiplies every head with a block of keys, as a product in dot
// form, and then adds the heads' rectified rows.
func (s *isa) indexScores(scores []float32, q []byte, w []float32, keys, scales []byte) {
	is := indexScratches.Get().(*indexScratch)
	defer indexScratches.Put(is)
	sc := borrow()
	defer giveBack(sc)
	heads := len(w)
	if cap(is.q) < len(q) {
		is.q = make([]float32, len(q))
		is.products = make([]float32, heads*indexBlock)
	}
	is.q, is.products = is.q[:len(q)], is.products[:heads*indexBlock]
	for from := 0; from < len(q); from += IndexDim {
		s.widenFP8With(sc, is.q[from:][:IndexDim], q[from:][:IndexDim], unitScale[:])
	}
	for first := 0; first < len(scores); first += indexBlock {
		n := min(indexBlock, len(scores)-first)
		p := product{y: is.products, ldy: indexBlock, x: is.q, ldx: IndexDim, m: heads, n: n, k: IndexDim}
		block := weights{format: formatFP8, b: keys[first*IndexDim:], ld: IndexDim, scale: blockScale{s: unitScale[:]}}
		if heads < s.panelMR {
			s.matMulRows(sc, &p, &block)
		} else {
			s.matMulPanels(sc, &p, &block)
		}
		s.addHeads(sc, scores[first:][:n], is.products, w)
		for i := range n {
			scores[first+i] *= keyScale(scales, first+i)
		}
	}
}

// unitScale is the scale of keys, whose own scale is applied to their score.
var unitScale = [1]float32{1}

// addHeads writes Σ_h w[h]·max(0, products[h][s]) to scores, h ascending.
func (s *isa) addHeads(sc *scratch, scores, products, w []float32) {
	v := &sc.vec
	for from := 0; from < len(scores); from += s.lanes {
		clear(v.acc[:])
		// dst walks the weights, a the products of one register of keys. A row
		// of products has indexBlock elements, so whole registers fit.
		v.dst, v.a, v.steps = at(w, 0), at(products, from), len(w)
		runVec(s.vec.reluAdd, v)
		copy(scores[from:], v.acc[:s.lanes])
	}
}
