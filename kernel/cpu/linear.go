package cpu

import (
	"fmt"
	"math"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
)

// convBlock is the number of channels of one item of a convolution.
const convBlock = 1024

// convolve computes causal convolutions. A worker computes convBlock channels of a sequence at a time.
func convolve(d *Device, a kernel.ConvArgs) error {
	if err := onlyF32("convolve", a.Out, a.X); err != nil {
		return err
	}
	const n = kernel.ConvRows
	if err := host.CheckSequences("convolve", &a.Sequences, a.X.Rows, a.State.Rows/n, a.Kept.Rows/n,
		a.Held); err != nil {
		return err
	}
	return each(d, a.Spans.Rows*ceilDiv(a.X.Cols, convBlock), a, convolveItem)
}

func convolveItem(d *Device, a *kernel.ConvArgs, worker, item int) {
	const n = kernel.ConvRows
	blocks := ceilDiv(a.X.Cols, convBlock)
	s, c0 := host.SpanAt(&a.Sequences, item/blocks), item%blocks*convBlock
	c1 := min(c0+convBlock, a.X.Cols)
	if s.Slot < 0 {
		for _, r := range s.Rows {
			clear(host.RowF32(a.Out, int(r))[c0:c1])
		}
		return
	}
	// A ring with copies of the last three rows and of the current row. Copies are needed because the state is
	// overwritten.
	ring := grow(&d.scratch[worker].rows, (n+1)*(c1-c0))
	at := func(i int) []float32 { return ring[i%(n+1)*(c1-c0):][:c1-c0] }
	for j := range n {
		if copy(at(j), host.RowF32(a.State, s.Slot*n+j)[c0:c1]); s.Begin {
			clear(at(j))
		}
	}
	keep := func(to kernel.Tensor, first, last int) {
		for j := range n {
			copy(host.RowF32(to, first*n+j)[c0:c1], at(last-n+1+j))
		}
	}
	slots := a.State.Rows / n
	for j := range s.Held {
		copy(at(n+j), host.HeldRow(a.Held, slots, s.Slot, j)[c0:c1])
	}
	first := n + s.Held
	if s.Hold {
		keep(a.State, s.Slot, first-1)
	}
	weights := host.F32(a.Weight)[c0*(n+1):]
	for j, r := range s.Rows {
		i := first + j
		if s.Hold {
			copy(host.HeldRow(a.Held, slots, s.Slot, j)[c0:c1], host.RowF32(a.X, int(r))[c0:c1])
		}
		copy(at(i), host.RowF32(a.X, int(r))[c0:c1])
		x0, x1, x2, x3 := at(i-3), at(i-2), at(i-1), at(i)
		out := host.RowF32(a.Out, int(r))[c0:c1]
		for c := range out {
			w := weights[c*(n+1):][:n+1]
			out[c] = w[0]*x0[c] + w[1]*x1[c] + w[2]*x2[c] + w[3]*x3[c]
		}
		for rest := out; len(rest) > 0; {
			k := min(len(rest), len(ones))
			d.tier.SiluMul(rest[:k], rest[:k], ones[:k])
			rest = rest[k:]
		}
		if w := int(host.RowI32(a.Snapshots, int(r))[0]); w >= 0 {
			keep(a.Kept, w, i)
		}
	}
	if !s.Hold {
		keep(a.State, s.Slot, first+len(s.Rows)-1)
	}
}

// delta computes the gated delta rule in its recurrent form. A worker computes one head of a sequence at a time, so
// that the state of the head, 64 KiB, stays in the cache of its core. The chunked form needs more multiplications and
// is faster only on matrix units.
func delta(d *Device, a kernel.DeltaArgs) error {
	if err := onlyF32("delta rule", a.Out, a.Q, a.K, a.V); err != nil {
		return err
	}
	if a.Chunk != 0 {
		return fmt.Errorf("%w: the delta rule was requested in chunks of %d rows; this device supports the recurrent "+
			"form only (chunk 0)", kernel.ErrUnsupported, a.Chunk)
	}
	const n = kernel.DeltaDim
	slots, kept := a.State.Rows/(a.Heads*n), a.Kept.Rows/(a.Heads*n)
	if err := host.CheckSequences("delta rule", &a.Sequences, a.Q.Rows, slots, kept, a.Held); err != nil {
		return err
	}
	return each(d, a.Spans.Rows*a.Heads, a, deltaHeadOf)
}

func deltaHeadOf(d *Device, a *kernel.DeltaArgs, worker, item int) {
	const n = kernel.DeltaDim
	s, h := host.SpanAt(&a.Sequences, item/a.Heads), item%a.Heads
	if s.Slot < 0 {
		for _, r := range s.Rows {
			clear(host.RowF32(a.Out, int(r))[h*n:][:n])
		}
		return
	}
	at := (s.Slot*a.Heads + h) * n
	state := host.F32(a.State.Slice(at, at+n))[:n*n]
	if s.Begin {
		clear(state)
	}
	m := grow(&d.scratch[worker].tile, 8*n)
	x := deltaHead{a: a, state: state, speed: float32(math.Exp(float64(host.RowF32(a.ALog, 0)[h]))),
		bias: host.RowF32(a.Bias, 0)[h*n:][:n], q: m[:n], k: m[n : 2*n], decay: m[2*n : 3*n], both: m[3*n : 5*n],
		sums: m[5*n : 7*n], u: m[7*n:]}
	w, slots := a.Heads*n, a.State.Rows/(a.Heads*n)
	for i := range s.Held {
		held := host.HeldRow(a.Held, slots, s.Slot, i)
		x.update(d, held[h*n:][:n], held[h*n:][:n], held[w+h*n:][:n], held[2*w+h*n:][:n], held[3*w+h])
	}
	if s.Hold { // rows that are held back change a copy of the state
		x.state = grow(&d.scratch[worker].rows, n*n)
		copy(x.state, state)
	}
	for i, row := range s.Rows {
		r := int(row)
		part := func(t kernel.Tensor) []float32 { return host.RowF32(t, r)[h*n:][:n] }
		beta := host.RowF32(a.Beta, r)[h]
		x.update(d, part(a.Q), part(a.K), part(a.V), part(a.Gate), beta)
		out := part(a.Out)
		copy(out, x.sums[:n])
		d.tier.Axpy(out, d.tier.Dot(x.q, x.k), x.u)
		if s.Hold {
			held := host.HeldRow(a.Held, slots, s.Slot, i)
			copy(held[h*n:][:n], part(a.K))
			copy(held[w+h*n:][:n], part(a.V))
			copy(held[2*w+h*n:][:n], part(a.Gate))
			held[3*w+h] = beta
		}
		if w := int(host.RowI32(a.Snapshots, r)[0]); w >= 0 {
			at := (w*a.Heads + h) * n
			copy(host.F32(a.Kept.Slice(at, at+n))[:n*n], x.state)
		}
	}
}

// deltaHead is one head of a sequence while its state is updated row by row.
type deltaHead struct {
	a     *kernel.DeltaArgs
	state []float32 // [key, value]
	speed float32
	bias  []float32
	// Vectors for the current row: normalised q and k; the decay of each channel; q and k times the decay; the values
	// that these two read from the previous state; and the values that the delta rule writes.
	q, k, decay, both, sums, u []float32
}

// update updates the state with a row. With S the previous state, the prediction of v is S^T (decay k), and the row's
// output is S^T (decay q) + (q k) u, so that the state is read once for both.
func (x *deltaHead) update(d *Device, q, k, v, gate []float32, beta float32) {
	const n = kernel.DeltaDim
	direction(d.tier, x.q, q, 1/math.Sqrt(n))
	direction(d.tier, x.k, k, 1)
	for c, f := range gate {
		x.decay[c] = -x.speed * (f + x.bias[c])
	}
	d.tier.ExpSum(x.decay, x.decay, 0)
	for c, e := range x.decay {
		x.decay[c] = x.a.Bound / (1 + e)
	}
	d.tier.ExpSum(x.decay, x.decay, 0)
	for c, e := range x.decay {
		x.both[c], x.both[n+c] = x.q[c]*e, x.k[c]*e
	}
	clear(x.sums)
	d.tier.AccumulateF32(x.sums, n, x.both, n, 2, x.state, n, n, n)
	weight := float32(sigmoid(float64(beta)))
	for c, v := range v {
		x.u[c] = weight * (v - x.sums[n+c])
	}
	for c, e := range x.decay {
		line := x.state[c*n:][:n]
		d.tier.ScaleMul(line, line, ones[:n], e)
		d.tier.Axpy(line, x.k[c], x.u)
	}
}

// direction writes v divided by its length, times by, to out.
func direction(tier *vec.Tier, out, v []float32, by float64) {
	tier.ScaleMul(out, v, ones[:len(v)], float32(by/math.Sqrt(float64(tier.Dot(v, v))+1e-6)))
}

// gatedNorm normalises every head and multiplies it by the sigmoid of its gate.
func gatedNorm(d *Device, a kernel.GatedNormArgs) error {
	if err := onlyF32("gated norm", a.Out, a.X, a.Gate); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(d *Device, a *kernel.GatedNormArgs, worker, t int) {
		size := a.X.Cols / a.Heads
		x, gate, out := host.RowF32(a.X, t), host.RowF32(a.Gate, t), host.RowF32(a.Out, t)
		weight, e := host.RowF32(a.Weight, 0), grow(&d.scratch[worker].tile, size)
		for h := 0; h < len(x); h += size {
			inv := float32(rootMean(d.tier, x[h:][:size], a.Eps))
			for c, v := range gate[h:][:size] {
				e[c] = -v
			}
			d.tier.ExpSum(e, e, 0)
			d.tier.ScaleMul(out[h:][:size], x[h:][:size], weight, inv)
			for c, v := range e {
				out[h+c] /= 1 + v
			}
		}
	})
}

// meanStreams collapses residual streams to their mean.
func meanStreams(d *Device, a kernel.MeanStreamsArgs) error {
	if err := onlyF32("mean of streams", a.Out, a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(d *Device, a *kernel.MeanStreamsArgs, _, t int) {
		var weights [kernel.MaxStreams]float32
		for i := range a.Streams {
			weights[i] = 1 / float32(a.Streams)
		}
		mixture(d.tier, host.RowF32(a.Out, t), host.RowF32(a.X, t), weights[:a.Streams])
	})
}

// layerNormRows computes LayerNorm of every row.
func layerNormRows(d *Device, a kernel.LayerNormArgs) error {
	if err := onlyF32("layer norm", a.Out, a.X); err != nil {
		return err
	}
	return each(d, a.X.Rows, a, func(_ *Device, a *kernel.LayerNormArgs, _, t int) {
		layerNorm(host.RowF32(a.Out, t), host.RowF32(a.X, t), host.RowF32(a.Weight, 0), host.RowF32(a.Bias, 0), a.Eps)
	})
}
