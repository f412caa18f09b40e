package ref

import (
	"math"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// convolve computes causal convolutions over the rows of each sequence.
func convolve(a kernel.ConvArgs) error {
	if err := onlyF32("convolve", a.Out, a.X); err != nil {
		return err
	}
	const n = kernel.ConvRows
	slots := a.State.Rows / n
	if err := host.CheckSequences("convolve", &a.Sequences, a.X.Rows, slots, a.Kept.Rows/n, a.Held); err != nil {
		return err
	}
	for i := range a.Spans.Rows {
		s := host.SpanAt(&a.Sequences, i)
		if s.Slot < 0 {
			clearRows(a.Out, s.Rows)
			continue
		}
		state := a.State.Slice(s.Slot*n, (s.Slot+1)*n)
		var before [][]float32 // rows of the sequence, starting three rows before its first row of this pass
		for j := range n {
			row := append([]float32(nil), host.RowF32(state, j)...)
			if s.Begin {
				clear(row)
			}
			before = append(before, row)
		}
		for j := range s.Held {
			before = append(before, append([]float32(nil), host.HeldRow(a.Held, slots, s.Slot, j)...))
		}
		old := before[len(before)-n:]
		for _, r := range s.Rows {
			before = append(before, host.RowF32(a.X, int(r)))
			last := before[len(before)-n-1:]
			out := host.RowF32(a.Out, int(r))
			for c := range out {
				var sum float64
				for j, w := range host.RowF32(a.Weight, c) {
					sum += float64(w) * float64(last[j][c])
				}
				out[c] = float32(sum * sigmoid(sum))
			}
			if w := int(host.RowI32(a.Snapshots, int(r))[0]); w >= 0 {
				copyRows(a.Kept.Slice(w*n, (w+1)*n), last[1:])
			}
		}
		if !s.Hold {
			copyRows(state, before[len(before)-n:])
			continue
		}
		copyRows(state, old)
		for j, r := range s.Rows {
			copy(host.HeldRow(a.Held, slots, s.Slot, j), host.RowF32(a.X, int(r)))
		}
	}
	return nil
}

func clearRows(t kernel.Tensor, rows []int32) {
	for _, r := range rows {
		clear(host.RowF32(t, int(r)))
	}
}

func copyRows(to kernel.Tensor, rows [][]float32) {
	for j, row := range rows {
		copy(host.RowF32(to, j), row)
	}
}

// delta computes the gated delta rule, row by row or in chunks of positions.
func delta(a kernel.DeltaArgs) error {
	if err := onlyF32("delta rule", a.Out, a.Q, a.K, a.V); err != nil {
		return err
	}
	slots, kept := a.State.Rows/(a.Heads*dim), a.Kept.Rows/(a.Heads*dim)
	if err := host.CheckSequences("delta rule", &a.Sequences, a.Q.Rows, slots, kept, a.Held); err != nil {
		return err
	}
	for i := range a.Spans.Rows {
		s := host.SpanAt(&a.Sequences, i)
		if s.Slot < 0 {
			clearRows(a.Out, s.Rows)
			continue
		}
		for h := range a.Heads {
			head := deltaHead{a: &a, h: h, state: a.State.Slice((s.Slot*a.Heads+h)*dim, (s.Slot*a.Heads+h+1)*dim)}
			if s.Begin {
				for c := range dim {
					clear(host.RowF32(head.state, c))
				}
			}
			for j := range s.Held {
				head.replay(host.HeldRow(a.Held, slots, s.Slot, j))
			}
			if a.Chunk == 0 || s.Hold {
				head.rows(s, slots)
				continue
			}
			at := int(host.RowI32(a.First, i)[0])
			for rows := s.Rows; len(rows) > 0; {
				n := min(a.Chunk-at%a.Chunk, len(rows))
				head.chunk(rows[:n])
				rows, at = rows[n:], at+n
			}
		}
	}
	return nil
}

const dim = kernel.DeltaDim

// deltaHead holds the arguments of one head of a sequence.
type deltaHead struct {
	a     *kernel.DeltaArgs
	h     int
	state kernel.Tensor // [key, value]
}

// deltaRow holds the normalised inputs of one row for a head.
type deltaRow struct {
	q, k, v [dim]float64
	g       [dim]float64 // logarithm of each channel's decay
	beta    float64
}

// rows computes the recurrent form, row by row. Rows that are held back do not change the state.
func (d *deltaHead) rows(s host.Span, slots int) {
	before := append([]float32(nil), host.F32(d.state)...)
	for j, r := range s.Rows {
		x := d.inputs(int(r))
		d.write(int(r), d.update(&x))
		if s.Hold {
			held, w := host.HeldRow(d.a.Held, slots, s.Slot, j), d.a.Heads*dim
			for i, t := range [...]kernel.Tensor{d.a.K, d.a.V, d.a.Gate} {
				copy(held[i*w+d.h*dim:][:dim], host.RowF32(t, int(r))[d.h*dim:][:dim])
			}
			held[3*w+d.h] = host.RowF32(d.a.Beta, int(r))[d.h]
		}
	}
	if s.Hold {
		copy(host.F32(d.state), before)
	}
}

// replay updates the state with a held-back row.
func (d *deltaHead) replay(held []float32) {
	w := d.a.Heads * dim
	part := func(i int) []float32 { return held[i*w+d.h*dim:][:dim] }
	x := d.row(part(0), part(0), part(1), part(2), held[3*w+d.h])
	d.update(&x)
}

// inputs reads and normalises a row.
func (d *deltaHead) inputs(r int) deltaRow {
	part := func(t kernel.Tensor) []float32 { return host.RowF32(t, r)[d.h*dim:][:dim] }
	return d.row(part(d.a.Q), part(d.a.K), part(d.a.V), part(d.a.Gate), host.RowF32(d.a.Beta, r)[d.h])
}

func (d *deltaHead) row(q, k, v, gate []float32, beta float32) (x deltaRow) {
	a := d.a
	unit := func(out *[dim]float64, v []float32, scale float64) {
		sum := 1e-6
		for _, x := range v {
			sum += float64(x) * float64(x)
		}
		for c, x := range v {
			out[c] = float64(x) / math.Sqrt(sum) * scale
		}
	}
	unit(&x.q, q, 1/math.Sqrt(dim))
	unit(&x.k, k, 1)
	speed := math.Exp(float64(host.RowF32(a.ALog, 0)[d.h]))
	bias := host.RowF32(a.Bias, 0)[d.h*dim:][:dim]
	for c, v := range v {
		x.v[c] = float64(v)
		x.g[c] = float64(a.Bound) * sigmoid(speed*(float64(gate[c])+float64(bias[c])))
	}
	x.beta = sigmoid(float64(beta))
	return x
}

// update updates the state with a row and returns the row's output. The state is rounded to float32 after every row, so
// that it is bitwise equal however a sequence is divided into passes.
func (d *deltaHead) update(x *deltaRow) (out [dim]float64) {
	var s [dim][dim]float64
	var predicted [dim]float64
	for c := range dim {
		for j, v := range host.RowF32(d.state, c) {
			s[c][j] = math.Exp(x.g[c]) * float64(v)
			predicted[j] += s[c][j] * x.k[c]
		}
	}
	for c := range dim {
		row := host.RowF32(d.state, c)
		for j := range dim {
			s[c][j] += x.k[c] * x.beta * (x.v[j] - predicted[j])
			out[j] += s[c][j] * x.q[c]
			row[j] = float32(s[c][j])
		}
	}
	return out
}

// write stores the output of a row and, if requested, a snapshot of the state after the row.
func (d *deltaHead) write(r int, out [dim]float64) {
	to := host.RowF32(d.a.Out, r)[d.h*dim:][:dim]
	for j, v := range out {
		to[j] = float32(v)
	}
	if w := int(host.RowI32(d.a.Snapshots, r)[0]); w >= 0 {
		at := (w*d.a.Heads + d.h) * dim
		kept := d.a.Kept.Slice(at, at+dim)
		for c := range dim {
			copy(host.RowF32(kept, c), host.RowF32(d.state, c))
		}
	}
}

// chunk computes the chunked form for adjacent rows of a sequence (glm53flash spec, 3.1). Only the last row may have a
// snapshot.
func (d *deltaHead) chunk(rows []int32) {
	n := len(rows)
	x, sum := make([]deltaRow, n), make([][dim]float64, n) // sum: sum of g up to and including the row
	for i, r := range rows {
		x[i] = d.inputs(int(r))
		for c := range dim {
			if sum[i][c] = x[i].g[c]; i > 0 {
				sum[i][c] += sum[i-1][c]
			}
		}
	}
	// between returns the sum over channels of p_i k_j exp(sum_i - sum_j); exponents are never above 0.
	between := func(p *[dim]float64, i, j int) (v float64) {
		for c := range dim {
			v += p[c] * x[j].k[c] * math.Exp(sum[i][c]-sum[j][c])
		}
		return v
	}
	state := func(p *[dim]float64, i int) (v [dim]float64) { // returns (p * exp(sum_i)) S0
		for c := range dim {
			w := p[c] * math.Exp(sum[i][c])
			for j, s := range host.RowF32(d.state, c) {
				v[j] += w * float64(s)
			}
		}
		return v
	}
	// Forward substitution: news[i] is the value that the delta rule adds to the state for row i: the row's own value
	// minus what the state already has for its key.
	news := make([][dim]float64, n)
	outs := make([][dim]float64, n)
	for i := range rows {
		known := state(&x[i].k, i)
		for j := range i {
			m := between(&x[i].k, i, j)
			for c := range dim {
				known[c] += m * news[j][c]
			}
		}
		for c := range dim {
			news[i][c] = x[i].beta * (x[i].v[c] - known[c])
		}
		outs[i] = state(&x[i].q, i)
		for j := range i + 1 {
			p := between(&x[i].q, i, j)
			for c := range dim {
				outs[i][c] += p * news[j][c]
			}
		}
	}
	for c := range dim {
		row := host.RowF32(d.state, c)
		for v := range dim {
			s := math.Exp(sum[n-1][c]) * float64(row[v])
			for j := range rows {
				s += x[j].k[c] * math.Exp(sum[n-1][c]-sum[j][c]) * news[j][v]
			}
			row[v] = float32(s)
		}
	}
	for i, r := range rows {
		d.write(int(r), outs[i])
	}
}

// gatedNorm normalises every head and multiplies it by the sigmoid of its gate.
func gatedNorm(a kernel.GatedNormArgs) error {
	if err := onlyF32("gated norm", a.Out, a.X, a.Gate); err != nil {
		return err
	}
	size, w := a.X.Cols/a.Heads, vector(a.Weight)
	for t := range a.X.Rows {
		x, gate, out := host.RowF32(a.X, t), host.RowF32(a.Gate, t), host.RowF32(a.Out, t)
		for h := range a.Heads {
			sum := 0.0
			for _, v := range x[h*size:][:size] {
				sum += float64(v) * float64(v)
			}
			inv := 1 / math.Sqrt(sum/float64(size)+float64(a.Eps))
			for c := h * size; c < (h+1)*size; c++ {
				out[c] = float32(float64(x[c]) * inv * w[c-h*size] * sigmoid(float64(gate[c])))
			}
		}
	}
	return nil
}

// meanStreams computes the mean of the residual streams.
func meanStreams(a kernel.MeanStreamsArgs) error {
	if err := onlyF32("mean of streams", a.Out, a.X); err != nil {
		return err
	}
	weights := make([]float64, a.Streams)
	for i := range weights {
		weights[i] = 1 / float64(a.Streams)
	}
	for t := range a.X.Rows {
		mixture(host.RowF32(a.Out, t), host.RowF32(a.X, t), weights)
	}
	return nil
}

// layerNormRows computes LayerNorm of every row.
func layerNormRows(a kernel.LayerNormArgs) error {
	if err := onlyF32("layer norm", a.Out, a.X); err != nil {
		return err
	}
	w, b := vector(a.Weight), vector(a.Bias)
	for t := range a.X.Rows {
		layerNorm(host.RowF32(a.Out, t), host.RowF32(a.X, t), w, b, a.Eps)
	}
	return nil
}
