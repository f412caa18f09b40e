package vec

// IndexBlockFP4 is an [IndexBlock] of FP4 keys: e2m1 codes with an e8m0 exponent for each [GroupFP4] of them.
type IndexBlockFP4 struct {
	n         int
	codes     [IndexBlockKeys * IndexDim / 2]byte
	exponents [IndexBlockKeys * IndexDim / GroupFP4]byte
	score     indexFP4Scorer
}

// indexFP4Scorer scores the keys of a block. Its methods are not called with empty arguments.
type indexFP4Scorer interface {
	// reset prepares for new keys and a number of queries.
	reset(queries int)
	// added is called before keys from n on are stored.
	added(n int)
	scores(scores, q, w []float32, keys *IndexBlockFP4)
}

// ScoresFP4 reports whether the tier has kernels for FP4 keys.
func (t *Tier) ScoresFP4() bool { return t.ops.newIndexFP4 != nil }

// NewIndexBlockFP4 returns an empty block. The tier must have kernels for FP4 keys.
func NewIndexBlockFP4(t *Tier) *IndexBlockFP4 {
	return &IndexBlockFP4{score: t.ops.newIndexFP4()}
}

// Reset empties the block, before the given number of queries is scored. With another number the scores have the same
// bits.
func (b *IndexBlockFP4) Reset(queries int) {
	b.n = 0
	b.score.reset(queries)
}

// Append adds n keys [n, 64], two codes in a byte, and their exponents [n, 4], in the byte order of a cache page. A
// block has space for IndexBlockKeys keys.
func (b *IndexBlockFP4) Append(codes, exponents []byte, n int) {
	const method, codeBytes, groups = "IndexBlockFP4.Append", IndexDim / 2, IndexDim / GroupFP4
	needMatrix(method, "codes", len(codes), n, codeBytes, codeBytes)
	needMatrix(method, "exponents", len(exponents), n, groups, groups)
	needMatrix(method, "block", IndexBlockKeys-b.n, 1, n, n)
	b.score.added(b.n)
	copy(b.codes[b.n*codeBytes:], codes[:n*codeBytes])
	copy(b.exponents[b.n*groups:], exponents[:n*groups])
	b.n += n
}

// Scores computes the indexer's scores of the first len(scores) keys of the block for one query:
//
//	scores[s] = Σ_h w[h] · max(0, q[h]·key[s])
//
//	scores [n], q [heads, 128], w [heads]
//
// The dot products and the sum over heads are float32, in ascending order of h.
func (b *IndexBlockFP4) Scores(scores, q, w []float32, heads int) {
	if readyScores("IndexBlockFP4.Scores", b.n, scores, len(q), w, heads) {
		b.score.scores(scores, q[:heads*IndexDim], w[:heads], b)
	}
}
