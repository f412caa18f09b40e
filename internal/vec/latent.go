package vec

import "fmt"

// The numbers of weight rows that [Tier.TiledLatent] supports: multiples of LatentDepth up to LatentRows.
const (
	LatentDepth = 32
	LatentRows  = 512
)

// TiledLatent computes y = x·w on tiles; the rows of w run along the output as in [Tier.AccumulateBF16]:
//
//	y [m, LatentDim] rows ldy apart, x [m, d] rows ldx apart, bfloat16 w [d, LatentDim] rows ldw apart
//
// Every sum adds d in steps of 32, first the rounded numbers of x and then their rounding errors, for any m. If ahead
// is not zero, the d weight rows that begin ahead rows after w are prefetched; they need not exist.
func (t *Tier) TiledLatent(y []float32, ldy int, x []float32, ldx, m int, w []byte, ldw, d, ahead int) {
	if !t.Tiled() {
		panic(fmt.Sprintf("vec: TiledLatent: tier %s has no tiles", t.Name))
	}
	if d%LatentDepth != 0 || d > LatentRows {
		panic(fmt.Sprintf("vec: TiledLatent: there are %d rows of weights, want a multiple of %d up to %d", d,
			LatentDepth, LatentRows))
	}
	p := product{y: y, ldy: ldy, x: x, ldx: ldx, m: m, ldw: ldw, n: LatentDim, k: d}
	needMatrix("TiledLatent", "y", len(y), m, LatentDim, ldy)
	needMatrix("TiledLatent", "x", len(x), m, d, ldx)
	needMatrix("TiledLatent", "w", len(w)/2, d, LatentDim, ldw)
	switch {
	case m == 0:
	case d == 0:
		for i := range m {
			clear(y[i*ldy:][:LatentDim])
		}
	default:
		t.ops.tiled.latent(p, w, ahead)
	}
}
