package cpu_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/internal/testkit/testflag"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// blockRig compares matrix products with block formats on a device with the results of the reference.
type blockRig struct {
	*testing.T
	rng      *rand.Rand
	dev, ref kernel.Device
}

// eachBlockRig runs a test on every backend, with 8-bit and with precise activations. most is the allowed relative L2
// error.
func eachBlockRig(t *testing.T, test func(r *blockRig, most float64)) {
	for _, b := range cpu.Backends() {
		if b.Available() != nil {
			continue
		}
		for _, precise := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/precise=%v", b.Name, precise), func(t *testing.T) {
				if b.Name == "cpu-go" && cpu.Backends()[0].Name != b.Name && !*testflag.Long {
					t.Skip("make long runs it: package internal/vec tests that faster tiers have the bits of this tier")
				}
				dev, err := b.Open(kernel.Options{Workers: 2, Precise: precise})
				if err != nil {
					t.Fatal(err)
				}
				defer dev.Close()
				exact, err := ref.Backends()[0].Open(kernel.Options{Workers: 2})
				if err != nil {
					t.Fatal(err)
				}
				defer exact.Close()
				most := 0.015
				if precise {
					most = 1e-5
				}
				test(&blockRig{T: t, rng: rand.New(rand.NewPCG(5, 6)), dev: dev, ref: exact}, most)
			})
		}
	}
}

func (r *blockRig) must(err error) {
	r.Helper()
	if err != nil {
		r.Fatal(err)
	}
}

// floats returns a tensor of normal numbers. Both devices use host memory, so both can read it.
func (r *blockRig) floats(rows, cols int) kernel.Tensor {
	t, err := kernel.New(r.ref, kernel.F32, rows, cols)
	r.must(err)
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(r.rng.NormFloat64())
	}
	r.must(kernel.WriteF32(r.ref, t, v))
	return t
}

func (r *blockRig) weight(f block.Format, out, in int) kernel.Weight {
	data := make([]byte, out*in/f.Values()*f.Bytes())
	f.Random(data, r.rng)
	return kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(data), DType: kernel.Blocks(f), Rows: out,
		Cols: in / f.Values(), Stride: in / f.Values()}}
}

func (r *blockRig) prepare(w kernel.Weight) (dev, exact kernel.Matrix) {
	dev, err := r.dev.Prepare(w, kernel.Projected)
	r.must(err)
	exact, err = r.ref.Prepare(w, kernel.Projected)
	r.must(err)
	return dev, exact
}

// near checks that a result differs from the reference by at most the allowed error.
func (r *blockRig) near(what string, got, want kernel.Tensor, most float64) {
	r.Helper()
	var wrong, norm float64
	for row := range got.Rows {
		g, w := host.RowF32(got, row), host.RowF32(want, row)
		for i := range g {
			wrong += math.Pow(float64(g[i])-float64(w[i]), 2)
			norm += math.Pow(float64(w[i]), 2)
		}
	}
	if e := math.Sqrt(wrong / norm); !(e <= most) {
		r.Errorf("%s: error %.2g, want at most %.2g", what, e, most)
	}
}

// same checks that two rows are bitwise equal.
func (r *blockRig) same(what string, got, want kernel.Tensor) {
	r.Helper()
	g, w := host.RowF32(got, 0), host.RowF32(want, 0)
	for i := range g {
		if math.Float32bits(g[i]) != math.Float32bits(w[i]) {
			r.Fatalf("%s: element %d is %v, but %v if the row is computed alone", what, i, g[i], w[i])
		}
	}
}

// blockFormats returns all block formats in groups of six, so that a projection has several formats.
func blockFormats() [][]block.Format { return slices.Collect(slices.Chunk(block.Formats(), 6)) }

// Products of several weights in one projection are close to the reference, and a row's results are bitwise equal
// whatever the other rows are.
func TestBlockProjections(t *testing.T) {
	for _, formats := range blockFormats() {
		eachBlockRig(t, func(r *blockRig, most float64) {
			var weights []kernel.Weight
			for i, f := range formats {
				weights = append(weights, r.weight(f, 33+i, 256))
			}
			r.projections(weights, most)
		})
	}
}

// projections checks products of few and of many rows with weights of 256 columns against the reference.
func (r *blockRig) projections(weights []kernel.Weight, most float64) {
	const in = 256
	for _, rows := range []int{1, 3, 5, 37} {
		x := r.floats(rows, in+1).Columns(0, in)
		var got, want, alone kernel.ProjectArgs
		got.X, want.X = x, x
		for _, w := range weights {
			dev, exact := r.prepare(w)
			got.To = append(got.To, kernel.Projection{Out: r.floats(rows, w.Out()+3).Columns(1, 1+w.Out()), W: dev})
			want.To = append(want.To, kernel.Projection{Out: r.floats(rows, w.Out()), W: exact})
			alone.To = append(alone.To, kernel.Projection{Out: r.floats(1, w.Out()), W: dev})
		}
		r.must(kernel.Do(r.dev, got))
		r.must(kernel.Do(r.ref, want))
		for i, w := range weights {
			r.near(fmt.Sprintf("%d rows by weight %d, %v", rows, i, w.Data.DType), got.To[i].Out, want.To[i].Out, most)
		}
		for row := range rows {
			alone.X = x.Slice(row, row+1)
			r.must(kernel.Do(r.dev, alone))
			for i, w := range weights {
				r.same(fmt.Sprintf("row %d of %d by weight %d, %v", row, rows, i, w.Data.DType),
					got.To[i].Out.Slice(row, row+1), alone.To[i].Out)
			}
		}
	}
}

// Results of experts in several formats are close to the reference, and a token's result is bitwise equal whatever the
// other tokens are.
func TestBlockExperts(t *testing.T) {
	eachBlockRig(t, func(r *blockRig, most float64) {
		for _, formats := range [][2]block.Format{{block.Q4_K, block.Q6_K}, {block.Q8_0, block.Q4_K},
			{block.Q5_K, block.Q8_0}, {block.IQ2_XXS, block.Q2_K}, {block.IQ4_NL, block.IQ1_M},
			{block.Q4_K, block.NVFP4}} {
			r.experts(fmt.Sprint(formats), func() kernel.Weight { return r.weight(formats[0], 256, 256) },
				func() kernel.Weight { return r.weight(formats[1], 256, 256) }, most)
		}
	})
}

// experts checks experts of 256 x 256 against the reference. gate makes the gate and up matrices, and down makes the
// down matrix.
func (r *blockRig) experts(name string, gate, down func() kernel.Weight, most float64) {
	const count, hidden, topk = 3, 256, 2
	var w kernel.ExpertWeights
	for range count {
		w.Gate, w.Up, w.Down = append(w.Gate, gate()), append(w.Up, gate()), append(w.Down, down())
	}
	dev, err := r.dev.PrepareExperts(w)
	r.must(err)
	exact, err := r.ref.PrepareExperts(w)
	r.must(err)
	for _, tokens := range []int{1, 19} {
		ids := make([]int32, tokens*topk)
		for i := range ids {
			ids[i] = int32((i + i/topk) % count)
		}
		chosen, err := kernel.New(r.ref, kernel.I32, tokens, topk)
		r.must(err)
		r.must(kernel.WriteI32(r.ref, chosen, ids))
		a := kernel.ExpertArgs{Out: r.zeros(tokens, hidden), X: r.floats(tokens, hidden), IDs: chosen,
			Weights: r.floats(tokens, topk), Experts: dev}
		want := a
		want.Out, want.Experts = r.zeros(tokens, hidden), exact
		r.must(kernel.Do(r.dev, a))
		r.must(kernel.Do(r.ref, want))
		// The allowed error is larger because three products follow each other.
		r.near(fmt.Sprintf("%d tokens, experts of %s", tokens, name), a.Out, want.Out, 2*most)
		for t := 0; t < tokens; t += 6 {
			one := a
			one.Out, one.X, one.IDs, one.Weights = r.zeros(1, hidden), a.X.Slice(t, t+1), a.IDs.Slice(t, t+1),
				a.Weights.Slice(t, t+1)
			r.must(kernel.Do(r.dev, one))
			r.same(fmt.Sprintf("token %d of %d, experts of %s", t, tokens, name), a.Out.Slice(t, t+1), one.Out)
		}
	}
}

func (r *blockRig) zeros(rows, cols int) kernel.Tensor {
	t, err := kernel.New(r.ref, kernel.F32, rows, cols)
	r.must(err)
	return t
}

// If there are more tokens than are grouped at once, each token's result is bitwise equal to that of the token alone.
func TestManyTokensOfExperts(t *testing.T) {
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 2})
	if err != nil {
		t.Fatal(err)
	}
	defer dev.Close()
	r := &blockRig{T: t, rng: rand.New(rand.NewPCG(7, 8)), dev: dev, ref: &ref.Device{}}
	const count, hidden, inner, topk, tokens = 4, 32, 32, 2, 2100
	var w kernel.ExpertWeights
	for range count {
		for _, list := range []*[]kernel.Weight{&w.Gate, &w.Up, &w.Down} {
			*list = append(*list, r.weight(block.Q8_0, inner, hidden))
		}
	}
	experts, err := dev.PrepareExperts(w)
	r.must(err)
	ids := make([]int32, tokens*topk)
	for i := range ids {
		ids[i] = int32(r.rng.IntN(count))
	}
	chosen, err := kernel.New(r.ref, kernel.I32, tokens, topk)
	r.must(err)
	r.must(kernel.WriteI32(r.ref, chosen, ids))
	all := kernel.ExpertArgs{Out: r.zeros(tokens, hidden), X: r.floats(tokens, hidden), IDs: chosen,
		Weights: r.floats(tokens, topk), Experts: experts}
	r.must(kernel.Do(dev, all))
	for _, t := range []int{0, 1023, 1024, 1025, 2047, 2048, tokens - 1} {
		one := all
		one.Out, one.X, one.IDs, one.Weights = r.zeros(1, hidden), all.X.Slice(t, t+1), all.IDs.Slice(t, t+1),
			all.Weights.Slice(t, t+1)
		r.must(kernel.Do(dev, one))
		r.same(fmt.Sprintf("token %d of %d", t, tokens), all.Out.Slice(t, t+1), one.Out)
	}
}
