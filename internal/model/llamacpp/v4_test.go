package llamacpp_test

import (
	"context"
	"fmt"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/block"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/model/spelling"
	"sparrow/internal/model/synth"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// v4Oracle returns the reference checkpoint of DeepSeek-V4.
func v4Oracle(t *testing.T) *llamacpp.Model {
	t.Helper()
	s, err := family.Open("../../../testdata/oracle/deepseek_v4-1")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return &llamacpp.Model{Name: "v4", Config: s.Model, Weights: s.Weights}
}

// openV4 opens a written model and compares its config with the original. Without a vocabulary the file names no
// tokens.
func openV4(t *testing.T, m *llamacpp.Model, mix llamacpp.Mix) *family.Source {
	t.Helper()
	got, err := family.Open(write(t, m, mix))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { got.Close() })
	have, want := *got.Model.(*config.V4), *m.Config.(*config.V4)
	have.BOS, have.EOS, have.Pad, want.BOS, want.EOS, want.Pad = nil, nil, nil, nil, nil, nil
	want.NextN, want.Format, want.Losses = 0, config.FormatGGUF, nil // config.json of a GGUF file names no format
	want.Scheme = weight.Scheme{}
	if !reflect.DeepEqual(have, want) {
		t.Errorf("config\n%+v\nwant\n%+v", have, want)
	}
	return got
}

// wantV4Values compares every tensor of a file with the tensor of the checkpoint. The file has the official names.
func wantV4Values(t *testing.T, got, want *weight.Checkpoint) {
	t.Helper()
	n := spelling.Of(func(name string) bool {
		_, ok := want.Tensor(name)
		return ok
	})
	for _, name := range got.Names() {
		var layer int
		var rest string
		from := n.Global(name)
		if k, _ := fmt.Sscanf(name, "layers.%d.%s", &layer, &rest); k == 2 {
			from = n.Layer(layer, rest)
		}
		if strings.HasSuffix(name, "tid2eid") {
			a, b := integers(t, got, name), integers(t, want, from)
			if !slices.Equal(a, b) {
				t.Errorf("table %s differs", name)
			}
		} else if !slices.Equal(values(t, got, name), values(t, want, from)) {
			t.Errorf("values of %s differ", name)
		}
	}
}

func integers(t *testing.T, c *weight.Checkpoint, name string) []int32 {
	t.Helper()
	x, ok := c.Tensor(name)
	if !ok {
		t.Fatalf("no tensor %s", name)
	}
	v, err := weight.ReadI32(x)
	if err != nil {
		t.Fatal(err)
	}
	return v
}

// A DeepSeek-V4 model written as float32 and read again has the same configuration and the same values. This includes
// experts, compressors, residual streams and tables of experts by token.
func TestV4FloatsComeBack(t *testing.T) {
	m := v4Oracle(t)
	got := openV4(t, m, llamacpp.MixF32)
	if have, want := len(got.Weights.Names()), len(m.Weights.Names()); have != want {
		t.Errorf("%d tensors, want %d", have, want)
	}
	wantV4Values(t, got.Weights, m.Weights)
}

// When a checkpoint with the types of the releases, FP8 with FP4 experts, is written, the experts keep their values in
// every packed mix, and the drafting block is left out.
func TestV4ExpertsStayFP4(t *testing.T) {
	text, err := synth.PresetConfig("v4-tiny")
	if err != nil {
		t.Fatal(err)
	}
	c, err := synth.New("v4-tiny", text, synth.Options{DType: synth.FP8})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "model")
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	s, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	m := &llamacpp.Model{Name: "v4-tiny", Config: s.Model, Weights: s.Weights}
	got := openV4(t, m, llamacpp.MixQ4KM)
	const expert = "layers.1.ffn.experts.2.w2.weight"
	if x, _ := got.Weights.Tensor(expert); x == nil || x.DType != weight.Blocks(block.MXFP4) {
		t.Fatalf("an expert is %+v, want MXFP4", x)
	}
	for _, name := range got.Weights.Names() {
		if strings.Contains(name, ".experts.") &&
			!slices.Equal(values(t, got.Weights, name), values(t, s.Weights, name)) {
			t.Fatalf("values of %s differ", name)
		}
	}
	f, err := gguf.Open(write(t, m, llamacpp.MixQ8_0))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	types := map[string]gguf.Type{}
	for _, x := range f.Tensors {
		types[x.Name] = x.Type
	}
	for name, want := range map[string]gguf.Type{
		"blk.0.attn_q_a.weight": gguf.TypeOf(block.Q8_0), "blk.0.hc_attn_fn.weight": gguf.F32,
		"blk.0.ffn_gate_tid2eid.weight": gguf.I32, "blk.1.attn_compressor_ape.weight": gguf.F32,
		"blk.0.ffn_up_exps.weight": gguf.TypeOf(block.MXFP4), "output_hc_fn.weight": gguf.F32,
	} {
		if types[name] != want {
			t.Errorf("%s is %v, want %v", name, types[name], want)
		}
	}
}

// Checkpoints in the spelling of transformers, with the experts of a layer in two tensors, are written too.
func TestV4StackedExpertsAreWritten(t *testing.T) {
	m := v4Oracle(t)
	from := spelling.Of(func(name string) bool { _, ok := m.Weights.Tensor(name); return ok })
	to := spelling.Of(func(name string) bool { return name == "model.embed_tokens.weight" })
	got := openV4(t, m, llamacpp.MixF32)
	c := m.Config.(*config.V4)
	var list []weight.Tensor
	for _, name := range got.Weights.Names() {
		var layer int
		var rest string
		old, as := from.Global(name), to.Global(name)
		if k, _ := fmt.Sscanf(name, "layers.%d.%s", &layer, &rest); k == 2 {
			old, as = from.Layer(layer, rest), to.Layer(layer, rest)
		}
		if strings.Contains(name, ".experts.") {
			continue
		}
		x, _ := m.Weights.Tensor(old)
		y := *x
		y.Name = as
		list = append(list, y)
	}
	for layer := range c.Layers {
		both, down := weight.Tensor{Name: to.Layer(layer, "ffn.experts.gate_up_proj"), DType: weight.BF16,
			Shape: []int{c.FFN.Experts, 2 * c.FFN.Inner, c.Hidden}}, weight.Tensor{
			Name: to.Layer(layer, "ffn.experts.down_proj"), DType: weight.BF16,
			Shape: []int{c.FFN.Experts, c.Hidden, c.FFN.Inner}}
		for e := range c.FFN.Experts {
			for _, w := range []string{"w1", "w3", "w2"} {
				x, _ := m.Weights.Tensor(from.Layer(layer, fmt.Sprintf("ffn.experts.%d.%s.weight", e, w)))
				if w == "w2" {
					down.Data = append(down.Data, x.Data...)
				} else {
					both.Data = append(both.Data, x.Data...)
				}
			}
		}
		list = append(list, both, down)
	}
	w, err := weight.FromTensors(nil, list, func() error { return nil })
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	stacked := openV4(t, &llamacpp.Model{Name: "stacked", Config: m.Config, Weights: w}, llamacpp.MixF32)
	wantV4Values(t, stacked.Weights, m.Weights)
	if have, want := len(stacked.Weights.Names()), len(m.Weights.Names()); have != want {
		t.Errorf("%d tensors, want %d", have, want)
	}
}

// A file with a drafting block, which llama.cpp's converter writes separately from the model, is refused with a
// suggestion.
func TestV4DraftFilesAreRefused(t *testing.T) {
	f, err := gguf.Open(write(t, v4Oracle(t), llamacpp.MixF32))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for name, want := range map[string]string{"blk.6.nextn.eh_proj.weight": "drafting block",
		"blk.0.ssm_a.weight": "blk.0.ssm_a.weight is unknown"} {
		f.Tensors[len(f.Tensors)-1].Name = name
		if err := openEdited(t, f, f.Metadata); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
}
