package vec

import (
	"encoding/binary"
	"fmt"
	"math"
	"testing"
)

// queryAndKeys generates a random query of the given heads and n keys with scales. Every other 16 keys have no
// subnormal code, because such codes are widened separately.
func queryAndKeys(seed uint64, heads, n int) (q []byte, w []float32, keys, scales []byte) {
	r := newRand(seed)
	q, w = numbersE4M3(r, heads*IndexDim), normals(r, heads)
	keys, scales = numbersE4M3(r, n*IndexDim), make([]byte, 4*n)
	for i := range keys {
		if i/(16*IndexDim)%2 == 0 && keys[i]&0x78 == 0 {
			keys[i] |= 0x08
		}
	}
	for i := range n {
		binary.LittleEndian.PutUint32(scales[4*i:], math.Float32bits(r.Float32()+0.01))
	}
	return q, w, keys, scales
}

func TestIndexScoresMatchTheFormula(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, heads := range []int{1, 2, 3, 5, 64} {
			for _, n := range []int{1, 7, 64, 65} {
				q, w, keys, scales := queryAndKeys(uint64(heads*n), heads, n)
				scores := make([]float32, n)
				tier.IndexScoresFP8(scores, q, w, keys, scales, heads, n)
				for s := range n {
					var sum, size float64
					for h := range heads {
						var dot, abs float64
						for d := range IndexDim {
							v := e4m3Value(int(q[h*IndexDim+d])) * e4m3Value(int(keys[s*IndexDim+d]))
							dot += v
							abs += math.Abs(v)
						}
						sum += float64(w[h]) * max(0, dot)
						size += math.Abs(float64(w[h])) * abs
					}
					k := float64(keyScale(scales, s))
					bound := size * k * 128 * math.Ldexp(1, -24)
					if got := float64(scores[s]); !(math.Abs(got-sum*k) <= bound) {
						t.Fatalf("heads=%d n=%d: score %d is %v, want %v within %v", heads, n, s, got, sum*k, bound)
					}
				}
			}
		}
	})
}

func TestIndexScoresAreIndependentOfTheirNeighbours(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		const heads, n = 32, 150
		q, w, keys, scales := queryAndKeys(3, heads, n)
		whole := make([]float32, n)
		tier.IndexScoresFP8(whole, q, w, keys, scales, heads, n)
		for _, size := range []int{1, 3, 63, 64, 65} {
			part := make([]float32, n)
			for at := 0; at < n; at += size {
				m := min(size, n-at)
				tier.IndexScoresFP8(part[at:], q, w, keys[at*IndexDim:], scales[4*at:], heads, m)
			}
			wantSame(t, fmt.Sprintf("%d at a time", size), part, whole)
		}
	})
}

func TestIndexScoresNaN(t *testing.T) {
	eachTier(t, func(t *testing.T, tier *Tier) {
		for _, heads := range []int{1, 64} {
			const n = 70
			q, w, keys, scales := queryAndKeys(4, heads, n)
			scores := make([]float32, n)
			keys[65*IndexDim+100] = 0xFF
			tier.IndexScoresFP8(scores, q, w, keys, scales, heads, n)
			for s, v := range scores {
				if (v != v) != (s == 65) {
					t.Fatalf("heads=%d: score %d is %v with a NaN in key 65", heads, s, v)
				}
			}
			q[5] = 0x7F
			tier.IndexScoresFP8(scores, q, w, keys, scales, heads, n)
			for s, v := range scores {
				if v == v {
					t.Fatalf("heads=%d: score %d is %v with a NaN in the query", heads, s, v)
				}
			}
		}
		clean := []float32{9, 9}
		tier.IndexScoresFP8(clean, nil, nil, make([]byte, 256), make([]byte, 8), 0, 2)
		wantSame(t, "no heads", clean, []float32{0, 0})
	})
}

// IndexScoresFP8 scores n keys in separate blocks.
func (t *Tier) IndexScoresFP8(scores []float32, q []byte, w []float32, keys, scales []byte, heads, n int) {
	b := NewIndexBlock(t)
	for at := 0; at < n; at += IndexBlockKeys {
		m := min(IndexBlockKeys, n-at)
		b.Reset(1)
		b.Append(keys[at*IndexDim:], scales[4*at:], m)
		b.Scores(scores[at:at+m], q, w, heads)
	}
}
