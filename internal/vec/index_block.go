package vec

// IndexDim is the length of the indexer's vectors.
const IndexDim = 128

// IndexBlockKeys is the number of keys of an IndexBlock.
const IndexBlockKeys = 512

// IndexBlock has cached keys of the indexer in the format in which a tier scores them, so that the queries of several
// rows share the cost of converting the keys. One goroutine uses it at a time; a block is reused after Reset.
type IndexBlock struct {
	n      int
	scales [4 * IndexBlockKeys]byte
	score  indexScorer
}

// indexScorer is a tier's representation of a block. Its methods are not called with empty arguments.
type indexScorer interface {
	// reset prepares for new keys and a number of queries.
	reset(queries int)
	// add appends keys; n keys are already stored.
	add(n int, keys []byte)
	scores(scores []float32, q []byte, w []float32, scales []byte)
}

// NewIndexBlock returns an empty block.
func NewIndexBlock(t *Tier) *IndexBlock {
	return &IndexBlock{score: t.ops.newIndexScorer()}
}

// Reset empties the block, before the given number of queries is scored. With another number the scores have the same
// bits.
func (b *IndexBlock) Reset(queries int) {
	b.n = 0
	b.score.reset(queries)
}

// Len returns the number of keys in the block.
func (b *IndexBlock) Len() int { return b.n }

// Append adds n keys [n, 128] e4m3 and their scales [n] float32, in the byte order of a cache page. A block has space
// for IndexBlockKeys keys. The keys are read when they are scored, so the caller must not change them before.
func (b *IndexBlock) Append(keys, scales []byte, n int) {
	const method = "IndexBlock.Append"
	needMatrix(method, "keys", len(keys), n, IndexDim, IndexDim)
	needMatrix(method, "scales", len(scales), n, 4, 4)
	needMatrix(method, "block", IndexBlockKeys-b.n, 1, n, n)
	if n == 0 {
		return
	}
	copy(b.scales[4*b.n:], scales[:4*n])
	b.score.add(b.n, keys[:n*IndexDim])
	b.n += n
}

// Scores computes the indexer's scores of the first len(scores) keys of the block for one query:
//
//	scores[s] = scale[s] · Σ_h w[h] · max(0, q[h]·key[s])
//
//	scores [n], q [heads, 128] e4m3, w [heads]
//
// The dot products and the sum over heads are float32, in ascending order of h. The caller must fold the query's
// scales into w. A NaN anywhere in a key, a scale or the query gives a NaN score.
func (b *IndexBlock) Scores(scores []float32, q []byte, w []float32, heads int) {
	if readyScores("IndexBlock.Scores", b.n, scores, len(q), w, heads) {
		b.score.scores(scores, q[:heads*IndexDim], w[:heads], b.scales[:])
	}
}

// readyScores checks the arguments of Scores for a block of keys and a query of the given lengths. It reports whether
// anything is to be computed: without heads, scores are zero.
func readyScores(method string, keys int, scores []float32, query int, w []float32, heads int) bool {
	needMatrix(method, "keys", keys, 1, len(scores), len(scores))
	needMatrix(method, "q", query, heads, IndexDim, IndexDim)
	needMatrix(method, "w", len(w), 1, heads, heads)
	if heads == 0 {
		clear(scores)
	}
	return len(scores) > 0 && heads > 0
}

// keyCopy stores the keys unchanged, for tiers whose score kernels read e4m3 keys.
type keyCopy struct {
	keys [IndexBlockKeys * IndexDim]byte
	run  func(scores []float32, q []byte, w []float32, keys, scales []byte)
}

func (*keyCopy) reset(int) {}

func (c *keyCopy) add(n int, keys []byte) { copy(c.keys[n*IndexDim:], keys) }

func (c *keyCopy) scores(scores []float32, q []byte, w []float32, scales []byte) {
	n := len(scores)
	c.run(scores, q, w, c.keys[:n*IndexDim], scales[:4*n])
}

// copiedKeys returns a function that makes blocks for a tier that scores unconverted keys.
func copiedKeys(run func(scores []float32, q []byte, w []float32, keys, scales []byte)) func() indexScorer {
	return func() indexScorer { return &keyCopy{run: run} }
}
