package vec

// IndexDim is the length of the indexer's vectors.
const IndexDim = 128

// IndexScoresFP8 computes the indexer's scores of n cached keys for one query:
//
//	scores[s] = scale[s] · Σ_h w[h] · max(0, q[h]·key[s])
//
//	scores [n], q [heads, 128] e4m3, w [heads], keys [n, 128] e4m3,
//	scales [n] float32 in little-endian bytes, as in a cache page
//
// The dot products and the sum over heads are float32, in ascending order of
// h. The query's scales are the caller's to fold into w. A NaN anywhere in a
// key, a scale or the query gives a NaN score.
func (t *Tier) IndexScoresFP8(scores []float32, q []byte, w []float32, keys, scales []byte, heads, n int) {
	const method = "IndexScoresFP8"
	needMatrix(method, "scores", len(scores), 1, n, n)
	needMatrix(method, "q", len(q), heads, IndexDim, IndexDim)
	needMatrix(method, "w", len(w), 1, heads, heads)
	needMatrix(method, "keys", len(keys), n, IndexDim, IndexDim)
	needMatrix(method, "scales", len(scales), n, 4, 4)
	if n == 0 {
		return
	}
	if heads == 0 {
		clear(scores[:n])
		return
	}
	t.ops.indexScores(scores[:n], q[:heads*IndexDim], w[:heads], keys[:n*IndexDim], scales[:4*n])
}
