//go:build !purego

package vec

import "unsafe"

// indexTiles holds a block of keys, and the query that is being scored. The first query widens keys while it scores
// them and does not keep the widened keys; for a second query the whole block is widened and kept.
type indexTiles struct {
	n      int                                                  // keys of the block
	scored bool                                                 // a query has scored the block
	wide   bool                                                 // tiles hold the block
	groups [IndexBlockKeys / indexGroup]unsafe.Pointer          // address of the keys of each group
	parts  *[IndexBlockKeys / indexGroup][keysBytes]byte        // groups that were added in parts
	order  [IndexBlockKeys/indexGroup + onceMore]unsafe.Pointer // groups in the order of the kernel for one query

	keys    [][4][512]uint16 // four tiles for each group: of two pairs of groups, or of the whole block
	shapes  tileShapes
	query   []uint16  // [heads, 128] bfloat16, heads a multiple of indexHeads
	weights []float32 // [heads], zero for padding heads
	// Products of 32 keys with all heads, four tiles for every 32 heads.
	products []float32
	pack     indexPackArgs
	run      indexScoreArgs
}

const (
	indexGroup = 16 // keys of a tile
	indexPair  = 32 // keys that the kernel scores at a time
	indexHeads = 32 // heads that the kernel multiplies at a time
	onceHeads  = 64 // heads of the kernel that widens keys while it scores
	onceMore   = 6  // groups after the last that this kernel widens or prefetches
	onceGroups = 4  // groups that this kernel widens at a time
	keysBytes  = indexGroup * IndexDim
)

// indexPackArgs are the arguments of kernels that convert codes to bfloat16; for keys, src has the addresses of groups.
type indexPackArgs struct {
	dst, src unsafe.Pointer
	steps    int
}

// indexScoreArgs are the arguments of kernels that score pairs of groups of keys for one query.
type indexScoreArgs struct {
	keys, query, weights, scales, scores unsafe.Pointer
	products, shapes, places             unsafe.Pointer
	pairs                                int // pairs of groups, 32 keys each
	heads                                int // pairs of blocks of 16 heads
	mask                                 int // bit mask of the keys of the last pair that exist
}

func newIndexTiles() indexScorer {
	t := &indexTiles{}
	for i := range 8 {
		t.shapes.set(i, 16, 64)
	}
	return t
}

func (*indexTiles) reset(int) {}

// add stores the addresses of whole groups, and a copy of a partial group.
func (t *indexTiles) add(n int, keys []byte) {
	t.wide = false
	if n == 0 {
		t.scored = false
	}
	t.n = n + len(keys)/IndexDim
	for len(keys) > 0 {
		group, have := n/indexGroup, n%indexGroup
		took := min(keysBytes-have*IndexDim, len(keys))
		if took == keysBytes {
			t.groups[group] = at(keys, 0)
		} else {
			if t.parts == nil {
				t.parts = new([IndexBlockKeys / indexGroup][keysBytes]byte)
			}
			t.groups[group] = at(t.parts[group][:], 0)
			copy(t.parts[group][have*IndexDim:], keys[:took])
		}
		n, keys = n+took/IndexDim, keys[took:]
	}
}

func (t *indexTiles) scores(scores []float32, q []byte, w []float32, scales []byte) {
	t.widenQuery(q, w)
	pairs := (len(scores) + indexPair - 1) / indexPair
	a := &t.run
	*a = indexScoreArgs{
		query: at(t.query, 0), weights: at(t.weights, 0), scales: at(scales, 0), scores: at(scores, 0),
		products: at(t.products, 0), shapes: unsafe.Pointer(&t.shapes), pairs: pairs,
		heads: len(t.weights) / indexHeads, mask: 1<<(len(scores)-(pairs-1)*indexPair) - 1,
	}
	if once := !t.scored && len(t.weights) == onceHeads; once {
		t.reserve(onceGroups)
		a.keys, a.places = unsafe.Pointer(&t.keys[0]), at(t.ordered(len(scores)), 0)
		runKernel(indexOnceamx, a)
		clear(t.order[:])
	} else {
		t.widenKeys()
		a.keys = unsafe.Pointer(&t.keys[0])
		runKernel(indexScoresamx, a)
	}
	t.scored = true
	a.scores = nil
}

// ordered returns the groups of the first n keys, followed by repetitions of the last group.
func (t *indexTiles) ordered(n int) []unsafe.Pointer {
	groups := (n + indexGroup - 1) / indexGroup
	copy(t.order[:], t.groups[:groups])
	for i := groups; i < len(t.order); i++ {
		t.order[i] = t.groups[groups-1]
	}
	return t.order[:]
}

// reserve allocates tiles for the given number of groups.
func (t *indexTiles) reserve(groups int) {
	if len(t.keys) < groups {
		t.keys = unsafe.Slice((*[4][512]uint16)(at(onLines[uint16](groups*4*512), 0)), groups)
	}
}

func (t *indexTiles) widenKeys() {
	if t.wide {
		return
	}
	t.reserve(len(t.groups))
	a := &t.pack
	a.dst, a.src, a.steps = unsafe.Pointer(&t.keys[0]), at(t.groups[:], 0), (t.n+indexGroup-1)/indexGroup
	runKernel(indexKeysamx, a)
	a.src = nil
	t.wide = true
}

// widenQuery converts a query to bfloat16 and pads the heads with zeros, whose products add nothing.
func (t *indexTiles) widenQuery(q []byte, w []float32) {
	heads := (len(w) + indexHeads - 1) / indexHeads * indexHeads
	if cap(t.weights) < heads {
		t.query, t.weights = onLines[uint16](heads*IndexDim), onLines[float32](heads)
		t.products = onLines[float32](heads * indexPair)
	}
	t.query, t.weights, t.products = t.query[:heads*IndexDim], t.weights[:heads], t.products[:heads*indexPair]
	clear(t.weights[copy(t.weights, w):])
	clear(t.query[len(q):])
	a := &t.pack
	a.dst, a.src, a.steps = at(t.query, 0), at(q, 0), len(q)/64
	runKernel(indexQueryamx, a)
	a.src = nil
}
