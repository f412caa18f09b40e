package cpu

import (
	"math"

	"sparrow/internal/vec"
	"sparrow/layout"
)

// attendBlock is the number of keys that attention processes at a time. 64 rows of 576 float32 fit in the L2 cache, and
// the running softmax is updated once per block. The block of a key depends on its position in the row's own list, so
// results do not depend on other rows.
const attendBlock = 64

// softmax is the running state of a block-wise softmax, one entry for each head or query row.
type softmax struct {
	top, sum []float32 // largest score so far; sum of the exponentials relative to it
	scores   []float32 // [rows, block]
}

// newSoftmax allocates the state for the given number of rows, with scores for blocks of the given size.
func newSoftmax(s *scratch, rows, block int) softmax {
	b := grow(&s.scores, rows*(block+2))
	st := softmax{top: b[:rows], sum: b[rows : 2*rows], scores: b[2*rows:]}
	st.reset()
	return st
}

// reset starts a new softmax for all rows.
func (st softmax) reset() {
	for i := range st.top {
		st.top[i], st.sum[i] = float32(math.Inf(-1)), 0
	}
}

// fold turns one block of raw scores p of row i into weights. If the largest score grows, it rescales the row's sums so
// far in out. The memory of p extends to the end of its block; elements after its length, up to a whole register, are
// set to zero.
func (st softmax) fold(d *Device, p, out []float32, i int, scale float32) {
	n := len(p)
	p = p[:ceilDiv(n, vec.SoftmaxLanes)*vec.SoftmaxLanes]
	for j := n; j < len(p); j++ {
		p[j] = float32(math.Inf(-1))
	}
	top, sum := d.tier.Softmax(p, scale, st.top[i])
	if top > st.top[i] {
		if st.sum[i] != 0 {
			keep := float32(math.Exp(float64(st.top[i] - top)))
			st.sum[i] *= keep
			scaleBy(d.tier, out, keep)
		}
		st.top[i] = top
	}
	st.sum[i] += sum
}

// finish divides the weighted sum of row i by the sum of weights, and returns the log-sum-exp and the largest score. A
// row without keys stays zero.
func (st softmax) finish(d *Device, out []float32, i int) (lse, top float32) {
	if st.sum[i] == 0 {
		return float32(math.Inf(1)), st.top[i]
	}
	scaleBy(d.tier, out, 1/st.sum[i])
	return st.top[i] + float32(math.Log(float64(st.sum[i]))), st.top[i]
}

// scaleBy multiplies x by a factor in place.
func scaleBy(tier *vec.Tier, x []float32, by float32) {
	for len(x) > 0 {
		n := min(len(x), len(ones))
		tier.ScaleMul(x[:n], x[:n], ones[:n], by)
		x = x[n:]
	}
}

// ones is a vector of factors of 1.
var ones = func() (v [layout.LatentDim]float32) {
	for i := range v {
		v[i] = 1
	}
	return v
}()
