package calibrate_test

import (
	"context"
	"math"
	"slices"
	"strings"
	"testing"

	"sparrow"
	"sparrow/builtin"
	"sparrow/internal/calibrate"
	"sparrow/internal/device/host"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/tokenizer"
	"sparrow/weight"
)

// tensor returns a float32 tensor with the given values.
func tensor(t *testing.T, rows int, values ...float32) kernel.Tensor {
	t.Helper()
	cols := len(values) / rows
	buf, err := host.Memory{}.Alloc(int64(4 * len(values)))
	if err != nil {
		t.Fatal(err)
	}
	x := kernel.Tensor{Buf: buf, DType: kernel.F32, Rows: rows, Cols: cols, Stride: cols}
	copy(host.F32(x), values)
	return x
}

func ids(t *testing.T, rows int, values ...int32) kernel.Tensor {
	t.Helper()
	x := tensor(t, rows, make([]float32, len(values))...)
	x.DType = kernel.I32
	copy(host.I32(x), values)
	return x
}

func silu(x float64) float64 { return x / (1 + math.Exp(-x)) }

// Three experts of one column in and out; row 0 chooses experts 0 and 2, row 1 expert 2. The inputs of gate and up are
// the rows; those of down are silu(gate*x) * up*x.
func TestExpertsAddTheirInputs(t *testing.T) {
	d := calibrate.On(&ref.Device{})
	var w kernel.ExpertWeights
	one := func(v float32) kernel.Weight { return kernel.Weight{Data: tensor(t, 1, v)} }
	for e := range 3 {
		w.Gate, w.Up, w.Down = append(w.Gate, one(1)), append(w.Up, one(2)), append(w.Down, one(float32(10*(e+1))))
	}
	x, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	if x.Count() != 3 || x.Hidden() != 1 || x.Inner() != 1 {
		t.Errorf("%d experts of %d and %d columns", x.Count(), x.Hidden(), x.Inner())
	}
	a := kernel.ExpertArgs{Out: tensor(t, 2, 100, 200), X: tensor(t, 2, 3, -1), IDs: ids(t, 2, 0, 2, 2, 2),
		Weights: tensor(t, 2, 0.5, 0.25, 1, 0), Experts: x}
	if err := kernel.Do(d, a); err != nil {
		t.Fatal(err)
	}
	first, second := silu(3)*6, silu(-1)*-2
	for i, want := range []float64{100 + 0.5*10*first + 0.25*30*first, 200 + 30*second} {
		if got := float64(host.RowF32(a.Out, i)[0]); math.Abs(got-want) > 1e-4 {
			t.Errorf("row %d is %v, want %v", i, got, want)
		}
	}
	of := d.MeanSquares()
	for name, c := range map[string]struct {
		w    kernel.Weight
		want float64
	}{
		"gate of expert 0": {w.Gate[0], 9}, "up of expert 0": {w.Up[0], 9},
		"down of expert 0": {w.Down[0], first * first},
		// Row 1 chose expert 2 twice, once with weight 0.
		"gate of expert 2": {w.Gate[2], (9 + 1 + 1) / 3.0},
		"down of expert 2": {w.Down[2], (first*first + 2*second*second) / 3},
	} {
		if got := of(host.Bytes(c.w.Data)); len(got) != 1 || math.Abs(float64(got[0])-c.want) > 1e-4 {
			t.Errorf("%s: mean squares %v, want %v", name, got, c.want)
		}
	}
	for name, w := range map[string]kernel.Weight{"gate": w.Gate[1], "down": w.Down[1]} {
		if got := of(host.Bytes(w.Data)); got != nil {
			t.Errorf("%s of expert 1, which no row chose, has mean squares %v", name, got)
		}
	}
	a.IDs = ids(t, 2, 0, 2, 3, 2)
	if err := kernel.Do(d, a); err == nil || !strings.Contains(err.Error(), "row 1 chose expert 3 of 3") {
		t.Errorf("an expert that does not exist: %v", err)
	}
}

// Single and joint products add their inputs; parts of a matrix that were prepared alone count together, and memory
// next to a matrix does not.
func TestProductsAddTheirInputs(t *testing.T) {
	d := calibrate.On(&ref.Device{})
	whole := tensor(t, 4, 1, 2, 3, 4, 5, 6, 7, 8)
	var parts []kernel.Matrix
	for r := range 4 {
		m, err := d.Prepare(kernel.Weight{Data: whole.Slice(r, r+1)}, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		parts = append(parts, m)
	}
	out := func() kernel.Tensor { return tensor(t, 1, 0) }
	for _, op := range []kernel.Op{
		kernel.MultiplyArgs{Out: out(), X: tensor(t, 1, 1, 2), W: parts[0]},
		kernel.ProjectArgs{X: tensor(t, 1, 3, 4), To: []kernel.Projection{{Out: out(), W: parts[1]}, {Out: out(),
			W: parts[2]}}},
	} {
		if err := kernel.Do(d, op); err != nil {
			t.Fatal(err)
		}
	}
	of := d.MeanSquares()
	for name, c := range map[string]struct {
		memory []byte
		want   []float32
	}{
		"the first row":        {host.Bytes(whole.Slice(0, 1)), []float32{1, 4}},
		"the second row":       {host.Bytes(whole.Slice(1, 2)), []float32{9, 16}},
		"the whole matrix":     {host.Bytes(whole), []float32{19. / 3, 36. / 3}},
		"rows two and three":   {host.Bytes(whole.Slice(1, 3)), []float32{9, 16}},
		"a row without inputs": {host.Bytes(whole.Slice(3, 4)), nil},
		"no memory":            {nil, nil},
	} {
		if got := of(c.memory); !slices.Equal(got, c.want) {
			t.Errorf("%s: %v, want %v", name, got, c.want)
		}
	}
}

// The first query projection multiplies normalised embeddings, which can be computed from the checkpoint alone. Chunks
// that begin with the same tokens are computed as often as they occur.
func TestInputsOfTheBuiltInModel(t *testing.T) {
	src, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	one := strings.Repeat(" the", 70) + strings.Repeat(" of", 70)
	for chunk, text := range map[int]string{16: strings.Repeat("A garden has seven trees and two birds. ", 6),
		140: one + one + one} {
		inputsOf(t, src, text, chunk)
	}
}

// inputsOf measures the inputs of matrices of the built-in model and checks those that are known.
func inputsOf(t *testing.T, src *family.Source, text string, chunk int) {
	t.Helper()
	var chunks []int
	p, of, err := calibrate.Measure(context.Background(), sparrow.Config{Workers: 1}, src, text, chunk,
		func(done, total int, _ float64) { chunks = append(chunks, done, total) })
	if err != nil {
		t.Fatal(err)
	}
	if n := len(chunks); p.Chunks < 2 || n != 2*p.Chunks || chunks[n-2] != p.Chunks || chunks[n-1] != p.Chunks {
		t.Errorf("%d chunks, reported as %v", p.Chunks, chunks)
	}
	tokens := tokensOf(t, text, p.Chunks, chunk)
	want := normalised(t, src.Weights, tokens, float64(src.Config.RMSEps))
	first, err := src.Weights.Matrix("model.layers.0.self_attn.q_a_proj.weight")
	if err != nil {
		t.Fatal(err)
	}
	got := of(first.Data.Data)
	if len(got) != len(want) {
		t.Fatalf("%d columns, want %d", len(got), len(want))
	}
	for i, v := range want {
		if math.Abs(float64(got[i])-v) > 1e-3*(v+1e-3) {
			t.Fatalf("column %d: mean square %v, want %v", i, got[i], v)
		}
	}
	for _, name := range []string{"lm_head.weight", "model.layers.2.self_attn.o_proj.weight",
		"model.layers.2.mlp.shared_experts.down_proj.weight"} {
		m, err := src.Weights.Matrix(name)
		if err != nil {
			t.Fatal(err)
		}
		if got := of(m.Data.Data); len(got) != m.Cols || slices.Min(got) < 0 || slices.Max(got) == 0 {
			t.Errorf("%s has %d columns: mean squares %v", name, m.Cols, got)
		}
	}
}

// tokensOf returns the tokens of the first chunks of a text, each with the tokens that the checkpoint puts before a
// text.
func tokensOf(t *testing.T, text string, chunks, chunk int) []int32 {
	t.Helper()
	tok, err := builtin.Tokenizer()
	if err != nil {
		t.Fatal(err)
	}
	first, err := tok.Encode("", tokenizer.EncodeOptions{AddSpecial: true})
	if err != nil {
		t.Fatal(err)
	}
	all, err := tok.Encode(text, tokenizer.EncodeOptions{})
	if err != nil {
		t.Fatal(err)
	}
	all = append(slices.Clone(first), all...)
	var out []int32
	for i := range chunks {
		part := slices.Clone(all[i*chunk : (i+1)*chunk])
		copy(part, first)
		out = append(out, part...)
	}
	return out
}

// normalised returns the mean squares of the columns of RMSNorm(embedding of token) with the first layer's weight.
func normalised(t *testing.T, w *weight.Checkpoint, tokens []int32, eps float64) []float64 {
	t.Helper()
	table, err := w.Matrix("model.embed_tokens.weight")
	if err != nil {
		t.Fatal(err)
	}
	norm, ok := w.Tensor("model.layers.0.input_layernorm.weight")
	if !ok {
		t.Fatal("the first norm is missing")
	}
	scale, err := weight.ReadF32(norm)
	if err != nil {
		t.Fatal(err)
	}
	out := make([]float64, table.Cols)
	for _, id := range tokens {
		row, err := table.ReadRows(int(id), int(id)+1)
		if err != nil {
			t.Fatal(err)
		}
		mean := 0.0
		for _, v := range row {
			mean += float64(v) * float64(v) / float64(len(row))
		}
		for i, v := range row {
			x := float64(v) * float64(scale[i])
			out[i] += x * x / (mean + eps) / float64(len(tokens))
		}
	}
	return out
}
