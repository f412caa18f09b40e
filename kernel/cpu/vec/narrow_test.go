package vec

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
)

// narrowWeights are normally distributed, with zeros, tiny numbers and a few far larger ones among them.
func narrowWeights(rng *rand.Rand, n, k int, rare float64) []byte {
	w := make([]byte, 2*n*k)
	for i := range n * k {
		v := rng.NormFloat64() * 0.02
		if rng.Float64() < rare {
			v *= []float64{0, 1e-9, math.Copysign(0, -1), 30}[rng.IntN(4)]
		}
		bits := math.Float32bits(float32(v)) >> 16
		w[2*i], w[2*i+1] = byte(bits), byte(bits>>8)
	}
	return w
}

func narrowed(w []byte, n, k, ldw int) *Narrow {
	out := NewNarrow(n, k, make([]byte, NarrowBytes(n, k)))
	for b := range out.Blocks() {
		out.Pack(b, w, ldw)
	}
	return out
}

// Products by narrow weights have the bits of those by the weights they were packed from.
func TestNarrowProducts(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for _, tier := range Tiers() {
		if !tier.Tiled() {
			continue
		}
		for _, k := range []int{128, 384, 512, 640, 1024, 1152} {
			for _, n := range []int{1, 31, 32, 33, 100} {
				w := narrowWeights(rng, n, k, 0.002)
				narrow := narrowed(w, n, k, k)
				for _, m := range []int{1, 2, 5, 8, 9, 16, 17, 32, 40} {
					t.Run(fmt.Sprintf("%s/%dx%dx%d", tier.Name, m, n, k), func(t *testing.T) {
						x := make([]float32, m*k)
						for i := range x {
							x[i] = rng.Float32() - 0.5
						}
						var cols Columns
						cols.Reset(m, k, InOrder)
						for i := range cols.Chunks() {
							tier.PackChunk(&cols, i, x, k)
						}
						for n0 := 0; n0 < n; n0 += 64 {
							want, got := make([]float32, m*(n-n0)), make([]float32, m*(n-n0))
							cut := Cut{Ldy: n - n0, X: &cols, M1: m, N: n - n0}
							cut.Y = want
							tier.TiledBF16(cut, w[2*n0*k:], k)
							cut.Y = got
							tier.TiledNarrow(cut, narrow, n0)
							if !slices.Equal(got, want) {
								t.Fatalf("from row %d: results differ", n0)
							}
						}
					})
				}
			}
		}
	}
}

// What is far from the rest of its row is odd; a matrix with many such weights is not worth packing, one whose sizes do not fit cannot be packed.
func TestNarrowWorth(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	const n, k = 64, 512
	for _, c := range []struct {
		rare float64
		want bool
	}{{0, true}, {0.001, true}, {0.05, false}, {1, false}} {
		if got := narrowed(narrowWeights(rng, n, k, c.rare), n, k, k).Worth(); got != c.want {
			t.Errorf("with %v of rare weights: worth %v, want %v", c.rare, got, c.want)
		}
	}
	for _, s := range [][2]int{{0, 128}, {1, 0}, {1, 64}, {32, 130}} {
		if got := NarrowBytes(s[0], s[1]); got != 0 {
			t.Errorf("[%d, %d] would take %d bytes", s[0], s[1], got)
		}
	}
	if got := NarrowBytes(3, 256); got != 32*256*3/2 {
		t.Errorf("[3, 256] would take %d bytes", got)
	}
}
