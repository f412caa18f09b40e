package step_test

import (
	"encoding/binary"
	"encoding/json"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/weight"
)

// The drafting layer is compared with a model that consists only of the drafting layer, its norm and its head. Row t of
// the model's embedding table is the input u_t of the drafting layer, which is computed here in float64 from the
// definition (v32 spec, 3.2). The output of that model after tokens 0 to t must equal the drafting layer's output after
// row t.

// hidden computes a prompt alone in one pass and records the residual rows. It returns the residual row of each token
// after the last layer, and the logits of the last token.
func (b *bench) hidden(tokens, pages []int32) (rows [][]float32, logits []float32) {
	b.Helper()
	b.record = plan.Record{Hidden: true}
	b.reset()
	res, err := b.run.Run([]step.Work{{Kind: plan.ModeExtend, Tokens: tokens, Pages: pages, Logits: 1,
		Record: b.record, RecordTo: len(tokens)}})
	if err != nil {
		b.Fatal(err)
	}
	for i := range tokens {
		rows = append(rows, slices.Clone(res.Hidden(b.m.Config().Layers-1, i)))
	}
	return rows, slices.Clone(res.Row(0))
}

// checkpoint holds the weights of a folder, read without the loader.
type checkpoint struct {
	*testing.T
	w *weight.Checkpoint
}

func (c *checkpoint) values(name string) []float64 {
	c.Helper()
	x, ok := c.w.Tensor(name)
	if !ok {
		c.Fatalf("no tensor %s", name)
	}
	v, err := weight.ReadF32(x)
	if err != nil {
		c.Fatal(err)
	}
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// normed returns the RMSNorm of x with the stored weight of the given name.
func (c *checkpoint) normed(x []float64, name string) []float64 {
	square := 0.0
	for _, v := range x {
		square += v * v
	}
	scale := 1 / math.Sqrt(square/float64(len(x))+1e-6)
	out := slices.Clone(x)
	for i, w := range c.values(name) {
		out[i] *= scale * w
	}
	return out
}

// input returns u_t: the projection of a token's normalised embedding concatenated with a normalised hidden state.
func (c *checkpoint) input(layer string, token int32, g []float64) []float64 {
	n := len(g)
	e := c.values(layer + "embed_tokens.weight")[int(token)*n : (int(token)+1)*n]
	pair := append(c.normed(e, layer+"enorm.weight"), c.normed(g, layer+"hnorm.weight")...)
	m := c.values(layer + "eh_proj.weight")
	out := make([]float64, n)
	for i := range out {
		for j, v := range pair {
			out[i] += m[i*2*n+j] * v
		}
	}
	return out
}

func widen(v []float32) []float64 {
	out := make([]float64, len(v))
	for i := range v {
		out[i] = float64(v[i])
	}
	return out
}

// alone writes a checkpoint that consists of the drafting layer, with inputs as its embedding table, and returns its
// folder.
func (c *checkpoint) alone(config []byte, layer string, inputs [][]float64) string {
	c.Helper()
	var fields map[string]any
	if err := json.Unmarshal(config, &fields); err != nil {
		c.Fatal(err)
	}
	fields["num_hidden_layers"], fields["first_k_dense_replace"], fields["num_nextn_predict_layers"] = 1, 0, 0
	vocab, hidden := int(fields["vocab_size"].(float64)), int(fields["hidden_size"].(float64))
	table := make([]byte, 4*vocab*hidden)
	for t, row := range inputs {
		for i, v := range row {
			binary.LittleEndian.PutUint32(table[4*(t*hidden+i):], math.Float32bits(float32(v)))
		}
	}
	list := []weight.Source{weight.SourceBytes("model.embed_tokens.weight", weight.F32, []int{vocab, hidden}, table)}
	for _, name := range c.w.Names() {
		rest, ok := strings.CutPrefix(name, layer)
		switch {
		case !ok || rest == "enorm.weight" || rest == "hnorm.weight" || rest == "eh_proj.weight" ||
			rest == "embed_tokens.weight":
			continue
		case rest == "shared_head.norm.weight":
			rest = "model.norm.weight"
		case rest == "shared_head.head.weight":
			rest = "lm_head.weight"
		default:
			rest = "model.layers.0." + rest
		}
		x, _ := c.w.Tensor(name)
		list = append(list, weight.SourceBytes(rest, x.DType, x.Shape, x.Data))
	}
	dir := c.TempDir()
	text, err := json.Marshal(fields)
	if err == nil {
		err = os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644)
	}
	if err == nil {
		err = weight.Create(filepath.Join(dir, "model.safetensors"), list, nil)
	}
	if err != nil {
		c.Fatal(err)
	}
	return dir
}

func loadFolder(t *testing.T, dir string) model.Model {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func TestDraftsAreThoseOfTheLayerAlone(t *testing.T) {
	text, err := synth.PresetConfig("v32-tiny")
	if err != nil {
		t.Fatal(err)
	}
	one := 1
	made, err := synth.New("v32-tiny", text, synth.Options{Seed: 21, NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := made.Write(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	w, err := weight.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	c := &checkpoint{t, w}
	const n = 150 // more tokens than index_topk
	whole := loadFolder(t, dir)
	b := newBench(t, whole, plan.Policy{KV: "f32", Speculation: plan.Speculation{Tokens: 3}})
	layer := "model.layers." + string(rune('0'+whole.Config().Layers)) + "."
	tokens, pages := b.prompt(1, n+2), b.pages(n+2)
	rows, _ := b.hidden(tokens[:n], pages)
	var inputs [][]float64
	for i := range n {
		inputs = append(inputs, c.input(layer, tokens[i+1], c.normed(widen(rows[i]), "model.norm.weight")))
	}
	draft := func(d step.Draft, chained bool) []float32 {
		res, err := b.run.Draft([]step.Draft{d}, chained)
		if err != nil {
			t.Fatal(err)
		}
		return slices.Clone(res.Row(0))
	}
	first := draft(step.Draft{Kind: plan.ModeExtend, Tokens: tokens[1 : n+1], Pages: pages, Logits: true}, false)
	second := draft(step.Draft{Kind: plan.ModeDraft, Tokens: tokens[n+1 : n+2], Cached: n, Pages: pages, Logits: true},
		true)

	want, hidden := c.run(text, layer, inputs)
	near(t, "the first draft", first, want)
	inputs = append(inputs, c.input(layer, tokens[n+1], c.normed(widen(hidden), layer+"shared_head.norm.weight")))
	want, _ = c.run(text, layer, inputs)
	near(t, "the second draft", second, want)
}

// run computes the logits of the layer alone for all inputs and returns those and the residual row of the last input.
func (c *checkpoint) run(config []byte, layer string, inputs [][]float64) (logits, hidden []float32) {
	c.Helper()
	m := loadFolder(c.T, c.alone(config, layer, inputs))
	b := newBench(c.T, m, plan.Policy{KV: "f32"})
	tokens := make([]int32, len(inputs))
	for i := range tokens {
		tokens[i] = int32(i)
	}
	rows, logits := b.hidden(tokens, b.pages(len(tokens)))
	return logits, rows[len(rows)-1]
}

func near(t *testing.T, what string, got, want []float32) {
	t.Helper()
	far, norm := 0.0, 0.0
	for i := range want {
		far += math.Pow(float64(got[i]-want[i]), 2)
		norm += math.Pow(float64(want[i]), 2)
	}
	if share := math.Sqrt(far / norm); !(share < 1e-3) {
		t.Errorf("%s: logits have a relative error of %v", what, share)
	}
}
