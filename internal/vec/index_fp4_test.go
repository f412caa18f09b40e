package vec

import (
	"fmt"
	"math"
	"testing"

	"sparrow/internal/num"
)

// fp4Index is a query and n FP4 keys.
type fp4Index struct {
	q, w             []float32
	codes, exponents []byte
	keys             []float32 // [n, IndexDim]
}

func newFP4Index(seed uint64, heads, n int) *fp4Index {
	r := newRand(seed)
	x := &fp4Index{q: normals(r, heads*IndexDim), w: normals(r, heads), codes: make([]byte, n*IndexDim/2),
		exponents: make([]byte, n*IndexDim/GroupFP4), keys: make([]float32, n*IndexDim)}
	for i := range x.codes {
		x.codes[i] = byte(r.Uint32())
	}
	for i := range x.exponents {
		x.exponents[i] = byte(120 + r.IntN(12))
	}
	x.widen()
	return x
}

func (x *fp4Index) widen() {
	for g, e := range x.exponents {
		num.DequantE2M1(x.keys[g*GroupFP4:][:GroupFP4], x.codes[g*GroupFP4/2:][:GroupFP4/2], e)
	}
}

// scores scores the first n keys, which are appended in pieces.
func (x *fp4Index) scores(b *IndexBlockFP4, piece, n int) []float32 {
	all := len(x.keys) / IndexDim
	for at := 0; at < all; at += piece {
		b.Append(x.codes[at*IndexDim/2:], x.exponents[at*IndexDim/GroupFP4:], min(piece, all-at))
	}
	scores := make([]float32, n+1)
	scores[n] = -7
	b.Scores(scores[:n], x.q, x.w, len(x.w))
	if scores[n] != -7 {
		panic("a score beyond the requested ones was written")
	}
	return scores[:n]
}

func eachFP4Tier(t *testing.T, test func(t *testing.T, tier *Tier)) {
	t.Helper()
	eachTier(t, func(t *testing.T, tier *Tier) {
		if !tier.ScoresFP4() {
			t.Skip("the tier has no kernels for FP4 keys")
		}
		test(t, tier)
	})
}

func TestFP4IndexScoresMatchTheFormula(t *testing.T) {
	eachFP4Tier(t, func(t *testing.T, tier *Tier) {
		b := NewIndexBlockFP4(tier)
		for _, heads := range []int{1, 2, 3, 5, 32, 64} {
			for _, n := range []int{1, 7, 64, 65, IndexBlockKeys} {
				x := newFP4Index(uint64(heads*n), heads, n)
				b.Reset(1)
				for s, got := range x.scores(b, n, n) {
					var sum, size float64
					for h := range heads {
						var dot, abs float64
						for d := range IndexDim {
							v := float64(x.q[h*IndexDim+d]) * float64(x.keys[s*IndexDim+d])
							dot += v
							abs += math.Abs(v)
						}
						sum += float64(x.w[h]) * max(0, dot)
						size += math.Abs(float64(x.w[h])) * abs
					}
					if bound := size * 128 * 0x1p-24; !(math.Abs(float64(got)-sum) <= bound) {
						t.Fatalf("heads=%d n=%d: score %d is %v, want %v within %v", heads, n, s, got, sum, bound)
					}
				}
			}
		}
		b.Reset(1)
		clean := []float32{9}
		b.Append(make([]byte, IndexDim/2), make([]byte, IndexDim/GroupFP4), 1)
		b.Scores(clean, nil, nil, 0)
		wantSame(t, "no heads", clean, []float32{0})
	})
}

// Scores do not depend on the pieces in which keys are appended, on the other keys, or on the number of queries.
func TestFP4IndexScoresAreIndependentOfTheirNeighbours(t *testing.T) {
	eachFP4Tier(t, func(t *testing.T, tier *Tier) {
		b := NewIndexBlockFP4(tier)
		for _, heads := range []int{1, 33} {
			const n = 150
			x := newFP4Index(3, heads, n)
			b.Reset(1)
			want := x.scores(b, n, n)
			for _, piece := range []int{1, 3, 63, 64, 65} {
				for queries := 1; queries <= 2; queries++ {
					b.Reset(queries)
					for _, seen := range []int{n, n/2 + 1, 0} {
						b.n = 0
						wantSame(t, fmt.Sprintf("%d heads, %d keys, pieces of %d", heads, seen, piece),
							x.scores(b, piece, seen), want[:seen])
					}
				}
			}
			// Keys that are appended after a query has been scored.
			b.Reset(2)
			some := *x
			some.codes, some.exponents, some.keys = x.codes[:100*IndexDim/2], x.exponents[:400], x.keys[:100*IndexDim]
			wantSame(t, "the first keys", some.scores(b, 100, 100), want[:100])
			b.Append(x.codes[100*IndexDim/2:], x.exponents[400:], n-100)
			got := make([]float32, n)
			b.Scores(got, x.q, x.w, heads)
			wantSame(t, "all keys", got, want)
		}
	})
}

// A NaN exponent makes the scores of its key NaN, and a NaN in the query all scores. The smallest and largest exponents
// of the layouts are exact.
func TestFP4IndexScoresOfExtremeExponents(t *testing.T) {
	eachFP4Tier(t, func(t *testing.T, tier *Tier) {
		b := NewIndexBlockFP4(tier)
		const n, heads = 70, 4
		x := newFP4Index(4, heads, n)
		x.exponents[65*4+3] = 255
		b.Reset(1)
		for s, v := range x.scores(b, n, n) {
			if (v != v) != (s == 65) {
				t.Fatalf("score %d is %v with a NaN in key 65", s, v)
			}
		}
		x.q[5] = float32(math.NaN())
		b.Reset(1)
		for s, v := range x.scores(b, n, n) {
			if v == v {
				t.Fatalf("score %d is %v with a NaN in the query", s, v)
			}
		}
		for _, e := range []byte{1, 2, 127, 250} {
			one := newFP4Index(5, 1, 2)
			clear(one.q)
			clear(one.codes)
			one.w[0], one.q[33] = 1, 8
			one.exponents[4+1], one.codes[IndexDim/2+16] = e, 0x70
			b.Reset(1)
			wantSame(t, fmt.Sprintf("exponent %d", e), one.scores(b, 2, 2), []float32{0,
				float32(math.Ldexp(8*6, int(e)-127))})
		}
	})
}

// BenchmarkFP4IndexBlocks measures one query with 32 heads over 2048 keys.
func BenchmarkFP4IndexBlocks(b *testing.B) {
	const heads, n = 32, 2048
	x := newFP4Index(1, heads, IndexBlockKeys)
	scores := make([]float32, IndexBlockKeys)
	for _, tier := range Tiers() {
		if !tier.ScoresFP4() {
			continue
		}
		b.Run(tier.Name, func(b *testing.B) {
			block := NewIndexBlockFP4(tier)
			for b.Loop() {
				for range n / IndexBlockKeys {
					block.Reset(1)
					block.Append(x.codes, x.exponents, IndexBlockKeys)
					block.Scores(scores, x.q, x.w, heads)
				}
			}
			b.ReportMetric(2*heads*IndexDim*n*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
		})
	}
}
