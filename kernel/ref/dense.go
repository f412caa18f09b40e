package ref

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"sparrow/internal/device/host"
	"sparrow/kernel"
)

// embed looks up embeddings.
func embed(a kernel.EmbedArgs) error {
	if err := onlyF32("embed", a.Out); err != nil {
		return err
	}
	table, err := host.Own("embed", a.Table)
	if err != nil {
		return err
	}
	row := make([]float64, table.In())
	ids := host.I32(a.IDs)
	for t := range a.Out.Rows {
		id := int(ids[t*a.IDs.Stride])
		if !a.Part.Valid(id, table.Out()) {
			return fmt.Errorf("%w: embed: token %d is outside the vocabulary of %d tokens",
				kernel.ErrArgument, id, max(a.Part.Of, table.Out()))
		}
		out := host.RowF32(a.Out, t)
		id, here := a.Part.Local(id, table.Out())
		if !here {
			clear(out)
			continue
		}
		widen(row, table.Data, id)
		for c := range out {
			out[c] = float32(row[c])
		}
	}
	return nil
}

// norm computes RMSNorm.
func norm(a kernel.NormArgs) error {
	if err := onlyF32("norm", a.Out, a.X); err != nil {
		return err
	}
	w := vector(a.Weight)
	for t := range a.X.Rows {
		rmsNorm(host.RowF32(a.Out, t), host.RowF32(a.X, t), w, a.Eps)
	}
	return nil
}

func rmsNorm(out, x []float32, w []float64, eps float32) {
	var sum float64
	for _, v := range x {
		sum += float64(v) * float64(v)
	}
	inv := 1 / math.Sqrt(sum/float64(len(x))+float64(eps))
	for c, v := range x {
		out[c] = float32(float64(v) * inv * w[c])
	}
}

// multiply multiplies by a stored weight.
func multiply(d *Device, a kernel.MultiplyArgs) error {
	if err := onlyF32("multiply", a.Out, a.X); err != nil {
		return err
	}
	w, err := host.Own("multiply", a.W)
	if err != nil {
		return err
	}
	row, x := make([]float64, w.In()), make([][]float32, a.X.Rows)
	for t := range x {
		x[t] = d.met(host.RowF32(a.X, t), w)
	}
	sums := make([]float64, len(x))
	for o := range w.Out() {
		d.weightRow(row, w, o)
		dots(sums, row, x)
		for t, sum := range sums {
			y := float32(d.sum(sum, w))
			out := host.RowF32(a.Out, t)
			if a.Accumulate {
				y = d.term(y) + out[o]
			}
			out[o] = y
		}
	}
	return nil
}

// project multiplies by one weight after the other.
func project(d *Device, a kernel.ProjectArgs) error {
	for i := range a.To {
		if err := multiply(d, a.Product(i)); err != nil {
			return err
		}
	}
	return nil
}

// dots computes the inner products of w with several rows. It computes four independent sums at a time, to use the
// CPU's pipelines.
func dots(sums, w []float64, x [][]float32) {
	n := len(x) &^ 3
	for t := 0; t < n; t += 4 {
		x0, x1, x2, x3 := x[t], x[t+1], x[t+2], x[t+3]
		var s0, s1, s2, s3 float64
		for i, v := range w {
			s0 += v * float64(x0[i])
			s1 += v * float64(x1[i])
			s2 += v * float64(x2[i])
			s3 += v * float64(x3[i])
		}
		sums[t], sums[t+1], sums[t+2], sums[t+3] = s0, s1, s2, s3
	}
	for t := n; t < len(x); t++ {
		sums[t] = dot(w, x[t])
	}
}

func dot(w []float64, x []float32) float64 {
	var sum float64
	for i, v := range x {
		sum += w[i] * float64(v)
	}
	return sum
}

// Take copies chosen rows.
func (*Device) Take(a kernel.TakeArgs) error { return host.Take(a) }

// gateRows computes silu(Gate) * Up, with the clamps of GateArgs.
func gateRows(a kernel.GateArgs) error {
	if err := onlyF32("gate", a.Out, a.Gate, a.Up); err != nil {
		return err
	}
	for t := range a.Gate.Rows {
		gate(host.RowF32(a.Out, t), host.RowF32(a.Gate, t), host.RowF32(a.Up, t), a.Limit)
	}
	return nil
}

func gate(out, g, u []float32, limit float32) {
	for c := range out {
		v, w := float64(g[c]), float64(u[c])
		if l := float64(limit); l > 0 {
			v, w = min(v, l), min(max(w, -l), l)
		}
		out[c] = float32(v / (1 + math.Exp(-v)) * w)
	}
}

// sample calls package sample, which defines the result.
func sample(a kernel.SampleArgs) error { return new(host.Sampler).Sample(a) }

// Accept compares drafts with the target's choices.
func (*Device) Accept(a kernel.AcceptArgs) error { return host.Accept(a) }

// candidates sorts the logits of every row and returns the largest.
func candidates(a kernel.CandidateArgs) error {
	for r := range a.Logits.Rows {
		row := slices.Clone(host.RowF32(a.Logits, r))
		ids, bad := make([]int32, len(row)), false
		for i, v := range row {
			if ids[i] = int32(i); v != v {
				row[i], bad = float32(math.Inf(-1)), true
			}
		}
		slices.SortStableFunc(ids, func(x, y int32) int { return cmp.Compare(row[y], row[x]) })
		best, sum := float64(row[ids[0]]), 0.0
		for _, v := range row {
			sum += math.Exp(float64(v) - best)
		}
		if math.IsInf(best, 0) {
			sum = 1 // log of the sum is then best itself; subtracting an infinite best would give NaN
		}
		for i := range a.Values.Cols {
			host.RowF32(a.Values, r)[i], host.RowI32(a.IDs, r)[i] = row[ids[i]], ids[i]
		}
		if host.RowF32(a.LogSum, r)[0] = float32(best + math.Log(sum)); bad {
			host.RowF32(a.LogSum, r)[0] = float32(math.NaN())
		}
	}
	return nil
}
