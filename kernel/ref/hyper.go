package ref

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// hyperPre computes the input of a sublayer from the streams, and the coefficients of its output.
func hyperPre(a kernel.HyperPreArgs) error {
	if err := onlyF32("hyper pre", a.Out, a.X); err != nil {
		return err
	}
	n := a.Streams
	base, scale := vector(a.Base), vector(a.Scale)
	m, pre, comb := make([]float64, len(base)), make([]float64, n), make([]float64, n*n)
	for t := range a.X.Rows {
		x := host.RowF32(a.X, t)
		mixes(m, host.RowF32(a.Mix, t), x, a.NormEps)
		post := host.RowF32(a.Post, t)
		for i := range n {
			pre[i] = sigmoid(scale[0]*m[i]+base[i]) + float64(a.Eps)
			post[i] = float32(2 * sigmoid(scale[1]*m[n+i]+base[n+i]))
		}
		for i := range comb {
			comb[i] = scale[2]*m[2*n+i] + base[2*n+i]
		}
		sinkhorn(comb, n, a.Rounds, float64(a.Eps))
		for i, v := range comb {
			host.RowF32(a.Comb, t)[i] = float32(v)
		}
		mixture(host.RowF32(a.Out, t), x, host.Carry(&a, t, pre))
	}
	return nil
}

// hyperSum computes the sum of the streams with given coefficients.
func hyperSum(a kernel.HyperSumArgs) error {
	if err := onlyF32("hyper sum", a.Out, a.X); err != nil {
		return err
	}
	by := make([]float64, a.Weights.Cols)
	for t := range a.X.Rows {
		for i, v := range host.RowF32(a.Weights, t) {
			by[i] = float64(v)
		}
		mixture(host.RowF32(a.Out, t), host.RowF32(a.X, t), by)
	}
	return nil
}

// mixes writes to m a row of the product with the sublayer's matrix, divided by the root mean square of all streams.
func mixes(m []float64, product, x []float32, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	r := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for i, v := range product {
		m[i] = float64(v) * r
	}
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// mixture writes the sum of the streams of x, weighted by pre, to out.
func mixture(out, x []float32, pre []float64) {
	for c := range out {
		var sum float64
		for i, p := range pre {
			sum += p * float64(x[i*len(out)+c])
		}
		out[c] = float32(sum)
	}
}

// sinkhorn turns an n x n matrix of logits into one whose rows and columns sum to nearly 1: softmax of every row, then
// columns and rows alternately, columns last.
func sinkhorn(a []float64, n, rounds int, eps float64) {
	for i := range n {
		softmax(a[i*n:][:n])
		for j := range n {
			a[i*n+j] += eps
		}
	}
	divide(a, n, 1, n, eps)
	for range rounds - 1 {
		divide(a, n, n, 1, eps)
		divide(a, n, 1, n, eps)
	}
}

// divide divides each of n rows (or columns) by the sum of its n elements + eps. Element j of row i is
// a[i*across+j*along].
func divide(a []float64, n, across, along int, eps float64) {
	for i := range n {
		sum := eps
		for j := range n {
			sum += a[i*across+j*along]
		}
		for j := range n {
			a[i*across+j*along] /= sum
		}
	}
}

// hyperPost adds a sublayer's output to the streams.
func hyperPost(a kernel.HyperPostArgs) error {
	if err := onlyF32("hyper post", a.X, a.Sub); err != nil {
		return err
	}
	n := a.Streams
	old := make([]float64, n)
	for t := range a.X.Rows {
		x, sub := host.RowF32(a.X, t), host.RowF32(a.Sub, t)
		post, comb := host.RowF32(a.Post, t), host.RowF32(a.Comb, t)
		for c, o := range sub {
			for j := range n {
				old[j] = float64(x[j*len(sub)+c])
			}
			for k := range n {
				sum := float64(post[k]) * float64(o)
				for j := range n {
					sum += float64(comb[j*n+k]) * old[j]
				}
				x[k*len(sub)+c] = float32(sum)
			}
		}
	}
	return nil
}

// hyperHead computes one row per token from the streams after the last layer.
func hyperHead(a kernel.HyperHeadArgs) error {
	if err := onlyF32("hyper head", a.Out, a.X); err != nil {
		return err
	}
	base, scale := vector(a.Base), vector(a.Scale)
	m := make([]float64, a.Streams)
	for t := range a.X.Rows {
		x := host.RowF32(a.X, t)
		mixes(m, host.RowF32(a.Mix, t), x, a.NormEps)
		for i := range m {
			m[i] = sigmoid(scale[0]*m[i]+base[i]) + float64(a.Eps)
		}
		mixture(host.RowF32(a.Out, t), x, m)
	}
	return nil
}

// headNorm computes RMSNorm of every head.
func headNorm(a kernel.HeadNormArgs) error {
	if err := onlyF32("head norm", a.X); err != nil {
		return err
	}
	size := a.X.Cols / a.Heads
	ones := make([]float64, size)
	for i := range ones {
		ones[i] = 1
	}
	for t := range a.X.Rows {
		row := host.RowF32(a.X, t)
		for h := range a.Heads {
			head := row[h*size:][:size]
			rmsNorm(head, head, ones, a.Eps)
		}
	}
	return nil
}
