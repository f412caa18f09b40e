package vec

import (
	"fmt"
	"testing"
)

// Scores of a block of keys are bitwise equal to those of a separate call for each query, in whatever pieces the block
// is filled.
func TestIndexBlocksGiveTheBitsOfSingleQueries(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		b := NewIndexBlock(tier)
		for _, heads := range []int{1, 16, 33, 64} {
			for _, n := range []int{1, 15, 16, 17, 33, 150, IndexBlockKeys} {
				q, w, keys, scales := queryAndKeys(uint64(heads*n), heads, n)
				want := make([]float32, n)
				tier.IndexScoresFP8(want, q, w, keys, scales, heads, n)
				for _, piece := range []int{3, 16, 64, n} {
					b.Reset(1 + piece%2)
					for at := 0; at < n; at += piece {
						b.Append(keys[at*IndexDim:], scales[4*at:], min(piece, n-at))
					}
					if b.Len() != n {
						t.Fatalf("the block holds %d keys of %d", b.Len(), n)
					}
					for _, seen := range []int{n, n/2 + 1, 0} {
						got := make([]float32, n+1)
						got[seen] = -7
						b.Scores(got[:seen], q, w, heads)
						wantSame(t, fmt.Sprintf("%d heads, %d of %d keys in pieces of %d", heads, seen, n, piece),
							got[:seen], want[:seen])
						if got[seen] != -7 {
							t.Fatalf("a score beyond the %d requested ones was written", seen)
						}
					}
				}
			}
		}
		b.Reset(1)
		b.Append(nil, nil, 0)
		clean := []float32{}
		b.Scores(clean, nil, nil, 0)
	})
}

// BenchmarkIndexBlocks measures one query with 64 heads over 32768 keys. Bytes per operation are keys and scales.
func BenchmarkIndexBlocks(b *testing.B) {
	const heads, n = 64, 32768
	q, w, keys, scales := queryAndKeys(1, heads, n)
	scores := make([]float32, n)
	for _, tier := range Tiers() {
		b.Run(tier.Name+"/alone", func(b *testing.B) {
			b.SetBytes(n * (IndexDim + 4))
			for b.Loop() {
				tier.IndexScoresFP8(scores, q, w, keys, scales, heads, n)
			}
			b.ReportMetric(2*heads*IndexDim*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
		b.Run(tier.Name+"/shared", func(b *testing.B) {
			blk := NewIndexBlock(tier)
			blk.Append(keys, scales, IndexBlockKeys)
			for b.Loop() {
				blk.Scores(scores[:IndexBlockKeys], q, w, heads)
			}
			b.ReportMetric(2*heads*IndexDim*IndexBlockKeys*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
