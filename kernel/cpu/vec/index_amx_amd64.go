//go:build !purego

package vec

import "unsafe"

// indexTiles is a block of keys on tiles, and the query that is being scored.
type indexTiles struct {
	keys    [IndexBlockKeys / indexGroup][4][512]uint16 // four tiles of pairs for each group
	shapes  tileShapes
	query   []uint16  // [heads, 128] bfloat16, heads a multiple of indexHeads
	weights []float32 // [heads], zero where there is no head
	// Products of 32 keys with all heads, four tiles for every 32 heads; two
	// sets, so that one is summed up while the other is filled.
	products []float32
	rest     [indexGroup * IndexDim]byte
	pack     indexPackArgs
	run      indexScoreArgs
}

const (
	indexGroup = 16 // keys of a tile
	indexPair  = 32 // keys the kernel takes at a time
	indexHeads = 32 // heads the kernel takes at a time
)

// indexPackArgs: codes to bfloat16.
type indexPackArgs struct {
	dst, src unsafe.Pointer
	steps    int
}

// indexScoreArgs: one query by pairs of groups of keys.
type indexScoreArgs struct {
	keys, query, weights, scales, scores unsafe.Pointer
	products, other, shapes              unsafe.Pointer
	pairs                                int // of 32 keys
	heads                                int // pairs of blocks of 16
	mask                                 int // keys of the last pair that exist
}

func newIndexTiles() indexScorer {
	t := &indexTiles{}
	for i := range 8 {
		t.shapes.set(i, 16, 64)
	}
	return t
}

// add widens whole groups from where they lie; keys of a group that is not full
// yet are kept, and widened as a group with whatever lies behind them.
func (t *indexTiles) add(n int, keys []byte) {
	for len(keys) > 0 {
		if have := n % indexGroup; have != 0 || len(keys) < len(t.rest) {
			took := copy(t.rest[have*IndexDim:], keys)
			t.widenKeys(n/indexGroup, t.rest[:])
			n, keys = n+took/IndexDim, keys[took:]
			continue
		}
		groups := len(keys) / len(t.rest)
		t.widenKeys(n/indexGroup, keys[:groups*len(t.rest)])
		n, keys = n+groups*indexGroup, keys[groups*len(t.rest):]
	}
}

func (t *indexTiles) fetch(memory []byte) {
	a := &t.pack
	a.src, a.steps = at(memory, 0), (len(memory)+63)/64
	runIndexFetch(a)
	a.src = nil
}

func (t *indexTiles) widenKeys(group int, keys []byte) {
	a := &t.pack
	a.dst, a.src, a.steps = unsafe.Pointer(&t.keys[group]), at(keys, 0), len(keys)/(indexGroup*IndexDim)
	runIndexKeys(a)
	a.src = nil
}

func (t *indexTiles) scores(scores []float32, q []byte, w []float32, scales []byte) {
	t.widenQuery(q, w)
	pairs := (len(scores) + indexPair - 1) / indexPair
	a := &t.run
	*a = indexScoreArgs{
		keys: unsafe.Pointer(&t.keys), query: at(t.query, 0), weights: at(t.weights, 0), scales: at(scales, 0), scores: at(scores, 0),
		products: at(t.products, 0), other: at(t.products, len(t.products)/2), shapes: unsafe.Pointer(&t.shapes),
		pairs: pairs, heads: len(t.weights) / indexHeads, mask: 1<<(len(scores)-(pairs-1)*indexPair) - 1,
	}
	runIndexScores(a)
	a.scores = nil
}

// widenQuery fills up the heads with zeros, whose products add nothing.
func (t *indexTiles) widenQuery(q []byte, w []float32) {
	heads := (len(w) + indexHeads - 1) / indexHeads * indexHeads
	if cap(t.weights) < heads {
		t.query, t.weights = make([]uint16, heads*IndexDim), make([]float32, heads)
		t.products = make([]float32, 2*heads*indexPair)
	}
	t.query, t.weights, t.products = t.query[:heads*IndexDim], t.weights[:heads], t.products[:2*heads*indexPair]
	clear(t.weights[copy(t.weights, w):])
	clear(t.query[len(q):])
	a := &t.pack
	a.dst, a.src, a.steps = at(t.query, 0), at(q, 0), len(q)/64
	runIndexQuery(a)
	a.src = nil
}

//go:noinline
func runIndexKeys(a *indexPackArgs) { indexKeysamx(a) }

//go:noinline
func runIndexFetch(a *indexPackArgs) { indexFetchamx(a) }

//go:noinline
func runIndexQuery(a *indexPackArgs) { indexQueryamx(a) }

//go:noinline
func runIndexScores(a *indexScoreArgs) { indexScoresamx(a) }

//go:noescape
func indexKeysamx(a *indexPackArgs)

//go:noescape
func indexFetchamx(a *indexPackArgs)

//go:noescape
func indexQueryamx(a *indexPackArgs)

//go:noescape
func indexScoresamx(a *indexScoreArgs)

var indexBlocks recycler[IndexBlock]

// indexScoresTiles scores keys that no other query shares.
func indexScoresTiles(scores []float32, q []byte, w []float32, keys, scales []byte) {
	b := indexBlocks.get()
	defer indexBlocks.put(b)
	if b.score == nil {
		b.score = newIndexTiles()
	}
	for first := 0; first < len(scores); first += IndexBlockKeys {
		n := min(IndexBlockKeys, len(scores)-first)
		b.Reset()
		b.Append(keys[first*IndexDim:], scales[4*first:], n)
		b.Scores(scores[first:][:n], q, w, len(w))
	}
}
