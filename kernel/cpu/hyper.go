package cpu

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// hyperWork is one operation of V4 that runs row by row: its arguments (exactly one field is set), and the function for
// a row.
type hyperWork struct {
	do       func(d *Device, w *hyperWork, worker, row int)
	rows     int
	pre      kernel.HyperPreArgs
	post     kernel.HyperPostArgs
	head     kernel.HyperHeadArgs
	sum      kernel.HyperSumArgs
	engram   kernel.EngramArgs
	table    kernel.TableArgs
	norm     kernel.HeadNormArgs
	compress kernel.CompressArgs
	entries  kernel.EntryStoreArgs
	keys     kernel.KeyStoreArgs
	unpack   kernel.UnpackArgs
	gated    kernel.GatedNormArgs
	mean     kernel.MeanStreamsArgs
	layer    kernel.LayerNormArgs
}

// eachToken distributes rows to the workers one by one, because a row of streams, or an entry, takes long enough.
func (d *Device) eachToken(w hyperWork) error {
	return d.hyper.run(d, w.rows, w, func(d *Device, w *hyperWork, worker, item int) { w.do(d, w, worker, item) })
}

// HyperPre computes the mixture of the streams that one site reads.
func (d *Device) HyperPre(a kernel.HyperPreArgs) error {
	if err := onlyF32("hyper pre", a.Out, a.X); err != nil {
		return err
	}
	return d.eachToken(hyperWork{rows: a.X.Rows, pre: a, do: (*Device).hyperPreRow})
}

func (d *Device) hyperPreRow(w *hyperWork, _, t int) {
	a, n := &w.pre, w.pre.Streams
	x, mix := host.RowF32(a.X, t), host.RowF32(a.Mix, t)
	base, scale := host.RowF32(a.Base, 0), host.RowF32(a.Scale, 0)
	r := d.rootMean(x, a.NormEps)
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
	d.mixture(host.RowF32(a.Out, t), x, host.Carry(a, t, pre[:n]))
}

// HyperSum collapses streams with given coefficients.
func (d *Device) HyperSum(a kernel.HyperSumArgs) error {
	if err := onlyF32("hyper sum", a.Out, a.X); err != nil {
		return err
	}
	return d.eachToken(hyperWork{rows: a.X.Rows, sum: a, do: func(d *Device, w *hyperWork, _, t int) {
		a := &w.sum
		d.mixture(host.RowF32(a.Out, t), host.RowF32(a.X, t), host.RowF32(a.Weights, t))
	}})
}

// rootMean returns the inverse of the root mean square of all streams of a token.
func (d *Device) rootMean(x []float32, eps float32) float64 {
	return 1 / math.Sqrt(float64(d.tier.SumSquares(x)/float32(len(x))+eps))
}

func logit(scale, mix float32, r float64, base float32) float64 {
	return float64(scale)*float64(mix)*r + float64(base)
}

func sigmoid(v float64) float64 { return 1 / (1 + math.Exp(-v)) }

// mixture writes the weighted sum of the streams of x to out. It adds the streams in order.
func (d *Device) mixture(out, x, pre []float32) {
	clear(out)
	for i, p := range pre {
		d.tier.Axpy(out, p, x[i*len(out):][:len(out)])
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

// HyperPost writes a sublayer's output into the streams.
func (d *Device) HyperPost(a kernel.HyperPostArgs) error {
	if err := onlyF32("hyper post", a.X, a.Sub); err != nil {
		return err
	}
	return d.eachToken(hyperWork{rows: a.X.Rows, post: a, do: (*Device).hyperPostRow})
}

// hyperPostRow computes the new streams of one token as a matrix product: the left matrix holds the mixing coefficients
// and, as its last column, the weights of the output; the rows of the right matrix are the old streams and the output.
func (d *Device) hyperPostRow(w *hyperWork, worker, t int) {
	a, n := &w.post, w.post.Streams
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

// HyperHead collapses the streams.
func (d *Device) HyperHead(a kernel.HyperHeadArgs) error {
	if err := onlyF32("hyper head", a.Out, a.X); err != nil {
		return err
	}
	return d.eachToken(hyperWork{rows: a.X.Rows, head: a, do: func(d *Device, w *hyperWork, _, t int) {
		a := &w.head
		x, mix, base := host.RowF32(a.X, t), host.RowF32(a.Mix, t), host.RowF32(a.Base, 0)
		r := d.rootMean(x, a.NormEps)
		var pre [kernel.MaxStreams]float32
		for i := range a.Streams {
			pre[i] = float32(sigmoid(logit(host.RowF32(a.Scale, 0)[0], mix[i], r, base[i]))) + a.Eps
		}
		d.mixture(host.RowF32(a.Out, t), x, pre[:a.Streams])
	}})
}

// HeadNorm computes RMSNorm of every head.
func (d *Device) HeadNorm(a kernel.HeadNormArgs) error {
	if err := onlyF32("head norm", a.X); err != nil {
		return err
	}
	return d.eachToken(hyperWork{rows: a.X.Rows, norm: a, do: func(d *Device, w *hyperWork, _, t int) {
		row, size := host.RowF32(w.norm.X, t), w.norm.X.Cols/w.norm.Heads
		for ; len(row) > 0; row = row[size:] {
			d.scale(row[:size], float32(d.rootMean(row[:size], w.norm.Eps)))
		}
	}})
}
