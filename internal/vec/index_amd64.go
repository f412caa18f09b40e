//go:build !purego

package vec

// indexBlock is the keys scored together: their products with every head stay
// in the L2 cache.
const indexBlock = 64

// indexScratch is the memory of one call. It grows to the most heads seen.
type indexScratch struct {
	q        []float32                   // [heads, IndexDim] widened
	products []float32                   // [heads, indexBlock]
	keys     [indexBlock * IndexDim]byte // a block filled up with zeros
	columns  [IndexDim * indexBlock]byte // a block transposed
}

var indexScratches recycler[indexScratch]

func (is *indexScratch) grow(heads int) {
	if cap(is.products) < heads*indexBlock {
		is.q = make([]float32, heads*IndexDim)
		is.products = make([]float32, heads*indexBlock)
	}
	is.q, is.products = is.q[:heads*IndexDim], is.products[:heads*indexBlock]
}

// indexScores multiplies every head with a block of keys and then adds the
// heads' rectified rows.
func (s *isa) indexScores(scores []float32, q []byte, w []float32, keys, scales []byte) {
	is := indexScratches.get()
	defer indexScratches.put(is)
	sc := takeScratch()
	defer releaseScratch(sc)
	is.grow(len(w))
	s.vec.widenWith(sc, is.q, q, unitScale[:], 0)
	for first := 0; first < len(scores); first += indexBlock {
		n := min(indexBlock, len(scores)-first)
		s.headProducts(sc, is, len(w), keys[first*IndexDim:][:n*IndexDim])
		s.addHeads(sc, scores[first:][:n], is.products, w)
		for i := range n {
			scores[first+i] *= keyScale(scales, first+i)
		}
	}
}

// unitScale is the scale of keys, whose own scale is applied to their score.
var unitScale = [1]float32{1}

// headProducts writes q[h]·key[s] for every head and the keys of a block to
// products. With keys transposed, lanes run along the keys and a product is
// one running sum; otherwise it is a product in dot form, whose folding costs
// a third of so short a sum.
func (s *isa) headProducts(sc *scratch, is *indexScratch, heads int, keys []byte) {
	n := len(keys) / IndexDim
	p := product{y: is.products, ldy: indexBlock, x: is.q, ldx: IndexDim, m: heads, n: n, k: IndexDim}
	w := weights{format: formatFP8, b: keys, ld: IndexDim, scale: blockScale{s: unitScale[:]}}
	switch {
	case s.transpose != nil:
		if n < indexBlock {
			clear(is.keys[copy(is.keys[:], keys):])
			keys = is.keys[:]
		}
		sc.vec.a, sc.vec.dst = at(keys, 0), at(is.columns[:], 0)
		runKernel(s.transpose, &sc.vec)
		w.b, w.ld, p.n = is.columns[:], indexBlock, indexBlock
		clear(is.products)
		s.accPacked(sc, &p, &w, 0, indexBlock, 0, IndexDim)
	case heads < s.panelMR:
		s.matMulRows(sc, &p, &w)
	default:
		s.matMulPanels(sc, &p, &w)
	}
}

// addHeads writes Σ_h w[h]·max(0, products[h][s]) to scores, h ascending.
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
