package cpu

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// hyperPre computes the mixture of the streams that one site reads.
func hyperPre(d *Device, a kernel.HyperPreArgs) error {
	if err := onlyF32("hyper pre", a.Out, a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, hyperPreRow)
}

func hyperPreRow(d *Device, a *kernel.HyperPreArgs, _, t int) {
	n := a.Streams
	x, mix := host.RowF32(a.X, t), host.RowF32(a.Mix, t)
	base, scale := host.RowF32(a.Base, 0), host.RowF32(a.Scale, 0)
	r := rootMean(d.tier, x, a.NormEps)
	var pre [kernel.MaxStreams]float32
	post := host.RowF32(a.Post, t)
	for i := range n {
		pre[i] = float32(sigmoid(logit(scale[0], mix[i], r, base[i]))) + a.Eps
		post[i] = float32(2 * sigmoid(logit(scale[1], mix[n+i], r, base[n+i])))
	}
	var comb [kernel.MaxStreams * kernel.MaxStreams]float64
	for i := range n * n {
		comb[i] = logit(scale[2], mix[2*n+i], r, base[2*n+i])
	}
	sinkhorn(comb[:n*n], n, a.Rounds, float64(a.Eps))
	out := host.RowF32(a.Comb, t)
	for i := range out {
		out[i] = float32(comb[i])
	}
	mixture(d.tier, host.RowF32(a.Out, t), x, host.Carry(a, t, pre[:n]))
}

// hyperSum collapses streams with given coefficients.
func hyperSum(d *Device, a kernel.HyperSumArgs) error {
	if err := onlyF32("hyper sum", a.Out, a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(d *Device, a *kernel.HyperSumArgs, _, t int) {
		mixture(d.tier, host.RowF32(a.Out, t), host.RowF32(a.X, t), host.RowF32(a.Weights, t))
	})
}

// rootMean returns the inverse of the root mean square of all streams of a token.
func rootMean(tier *vec.Tier, x []float32, eps float32) float64 {
	return 1 / math.Sqrt(float64(tier.Dot(x, x)/float32(len(x))+eps))
}

func logit(scale, mix float32, r float64, base float32) float64 {
	return float64(scale)*float64(mix)*r + float64(base)
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// mixture writes the weighted sum of the streams of x to out. It adds the streams in order.
func mixture(tier *vec.Tier, out, x, pre []float32) {
	clear(out)
	for i, p := range pre {
		tier.Axpy(out, p, x[i*len(out):][:len(out)])
	}
}

// sinkhorn normalises an n x n matrix of logits in float64. 20 rounds over 16 numbers cost little, and the matrix
// determines how streams mix in the rest of the layer.
func sinkhorn(a []float64, n, rounds int, eps float64) {
	for i := range n {
		row := a[i*n:][:n]
		top := math.Inf(-1)
		for _, v := range row {
			top = max(top, v)
		}
		sum := 0.0
		for j, v := range row {
			row[j] = math.Exp(v - top)
			sum += row[j]
		}
		for j := range row {
			row[j] = row[j]/sum + eps
		}
	}
	columns(a, n, eps)
	for range rounds - 1 {
		for i := range n {
			row := a[i*n:][:n]
			sum := eps
			for _, v := range row {
				sum += v
			}
			for j := range row {
				row[j] /= sum
			}
		}
		columns(a, n, eps)
	}
}

// columns divides every column by its sum.
func columns(a []float64, n int, eps float64) {
	for j := range n {
		sum := eps
		for i := range n {
			sum += a[i*n+j]
		}
		for i := range n {
			a[i*n+j] /= sum
		}
	}
}

// hyperPost writes a sublayer's output into the streams.
func hyperPost(d *Device, a kernel.HyperPostArgs) error {
	if err := onlyF32("hyper post", a.X, a.Sub); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, hyperPostRow)
}

// hyperPostRow computes the new streams of one token as a matrix product: the left matrix holds the mixing coefficients
// and, as its last column, the weights of the output; the rows of the right matrix are the old streams and the output.
func hyperPostRow(d *Device, a *kernel.HyperPostArgs, worker, t int) {
	n := a.Streams
	x, sub := host.RowF32(a.X, t), host.RowF32(a.Sub, t)
	post, comb := host.RowF32(a.Post, t), host.RowF32(a.Comb, t)
	old, by := grow(&d.scratch[worker].rows, len(x)+len(sub)), grow(&d.scratch[worker].tile, n*(n+1))
	copy(old, x)
	copy(old[len(x):], sub)
	for k := range n {
		for j := range n {
			by[k*(n+1)+j] = comb[j*n+k]
		}
		by[k*(n+1)+n] = post[k]
	}
	clear(x)
	d.tier.AccumulateF32(x, len(sub), by, n+1, n, old, len(sub), n+1, len(sub))
}

// hyperHead collapses the streams.
func hyperHead(d *Device, a kernel.HyperHeadArgs) error {
	if err := onlyF32("hyper head", a.Out, a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(d *Device, a *kernel.HyperHeadArgs, _, t int) {
		x, mix, base := host.RowF32(a.X, t), host.RowF32(a.Mix, t), host.RowF32(a.Base, 0)
		r := rootMean(d.tier, x, a.NormEps)
		var pre [kernel.MaxStreams]float32
		for i := range a.Streams {
			pre[i] = float32(sigmoid(logit(host.RowF32(a.Scale, 0)[0], mix[i], r, base[i]))) + a.Eps
		}
		mixture(d.tier, host.RowF32(a.Out, t), x, pre[:a.Streams])
	})
}

// headNorm computes RMSNorm of every head.
func headNorm(d *Device, a kernel.HeadNormArgs) error {
	if err := onlyF32("head norm", a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(d *Device, a *kernel.HeadNormArgs, _, t int) {
		row, size := host.RowF32(a.X, t), a.X.Cols/a.Heads
		for ; len(row) > 0; row = row[size:] {
			scaleBy(d.tier, row[:size], float32(rootMean(d.tier, row[:size], a.Eps)))
		}
	})
}
