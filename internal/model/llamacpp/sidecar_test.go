package llamacpp_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/llamacpp"
	"sparrow/internal/testkit/archive"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/weight"
	"sparrow/weight/gguf"
)

// leaves maps the names of a stage's tensors in GGUF files to those in checkpoints.
var leaves = map[string]string{
	"attn_norm.weight": "attn_norm.weight", "ffn_norm.weight": "ffn_norm.weight", "hc_attn_fn.weight": "hc_attn_fn",
	"hc_attn_base.weight": "hc_attn_base", "hc_attn_scale.weight": "hc_attn_scale", "hc_ffn_fn.weight": "hc_ffn_fn",
	"hc_ffn_base.weight": "hc_ffn_base", "hc_ffn_scale.weight": "hc_ffn_scale", "attn_sinks.weight": "attn.attn_sink",
	"attn_q_a.weight": "attn.wq_a.weight", "attn_q_a_norm.weight": "attn.q_norm.weight",
	"attn_q_b.weight": "attn.wq_b.weight", "attn_kv.weight": "attn.wkv.weight",
	"attn_kv_a_norm.weight": "attn.kv_norm.weight", "attn_output_a.weight": "attn.wo_a.weight",
	"attn_output_b.weight": "attn.wo_b.weight", "ffn_gate_inp.weight": "ffn.gate.weight",
	"exp_probs_b.bias": "ffn.gate.bias", "ffn_gate_shexp.weight": "ffn.shared_experts.w1.weight",
	"ffn_up_shexp.weight": "ffn.shared_experts.w3.weight", "ffn_down_shexp.weight": "ffn.shared_experts.w2.weight",
}

// headWriter writes the draft head of a checkpoint as its own file.
type headWriter struct {
	t    *testing.T
	from *weight.Checkpoint
	out  []gguf.Source
}

func (w *headWriter) add(name string, shape []int, from ...string) {
	w.t.Helper()
	var data []byte
	for _, f := range from {
		x, ok := w.from.Tensor(f)
		if !ok {
			w.t.Fatalf("no tensor %s", f)
		}
		if shape == nil {
			shape = x.Shape
		}
		v, err := weight.ReadF32(x)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, f := range v {
			data = binary.LittleEndian.AppendUint32(data, math.Float32bits(f))
		}
	}
	w.out = append(w.out, gguf.Source{Name: name, Type: gguf.F32, Shape: shape, Write: func(to io.Writer) error {
		_, err := to.Write(data)
		return err
	}})
}

// stages adds the tensors of all stages; blk is the beginning of their names.
func (w *headWriter) stages(blk string, c *config.V4) {
	for k := range c.DSpark.Stages {
		to, from := fmt.Sprintf(blk, k), fmt.Sprintf("mtp.%d.", k)
		for name, of := range leaves {
			w.add(to+name, nil, from+of)
		}
		for name, of := range map[string]string{"ffn_gate_exps": "w1", "ffn_up_exps": "w3", "ffn_down_exps": "w2"} {
			var list []string
			for e := range c.FFN.Experts {
				list = append(list, fmt.Sprintf("%sffn.experts.%d.%s.weight", from, e, of))
			}
			x, _ := w.from.Tensor(list[0])
			w.add(to+name+".weight", []int{c.FFN.Experts, x.Shape[0], x.Shape[1]}, list...)
		}
	}
}

// A model and its DSpark head, in two files of one folder and in both dialects, have the configuration and the values
// of the release, and draft. A head may lack the tensors that only shorten blocks.
func TestDraftHeadsBesideTheModel(t *testing.T) {
	dir := archive.Unpack(t, "../../../testdata/oracle/deepseek_v4-dspark-1.tar.gz")
	src, err := family.Open(filepath.Join(dir, "deepseek_v4-dspark-1"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	c := src.Model.(*config.V4)
	d := c.DSpark
	folder := t.TempDir()
	path := filepath.Join(folder, "model.gguf")
	if _, err := llamacpp.Write(context.Background(), path, &llamacpp.Model{Name: "spark", Config: c,
		Weights: src.Weights}, llamacpp.MixF32, nil); err != nil {
		t.Fatal(err)
	}
	last := fmt.Sprintf("mtp.%d.", d.Stages-1)
	ids := func(from int) (out []int32) {
		for _, l := range d.Taps {
			out = append(out, int32(l+from))
		}
		return out
	}
	for dialect, write := range map[string]func(w *headWriter) []gguf.Pair{
		"dflash": func(w *headWriter) []gguf.Pair {
			w.stages("blk.%d.", c)
			w.add("fc.weight", nil, "mtp.0.main_proj.weight")
			w.add("enc.output_norm.weight", nil, "mtp.0.main_norm.weight")
			w.add("output_norm.weight", nil, last+"norm.weight")
			w.add("token_embd.weight", nil, "embed.weight") // the embedding of the model
			for _, x := range []string{"fn", "base", "scale"} {
				w.add("output_hc_"+x+".weight", nil, last+"hc_head_"+x)
			}
			for _, x := range []string{"1", "2"} {
				w.add("markov_w"+x+".weight", nil, last+"markov_head.markov_w"+x+".weight")
			}
			return []gguf.Pair{{Key: "dflash.block_size", Value: uint32(d.Block)},
				{Key: "dflash.target_layers", Value: ids(1)},
				{Key: "tokenizer.ggml.mask_token_id", Value: uint32(d.Noise)}}
		},
		"deepseek4-dspark": func(w *headWriter) []gguf.Pair {
			w.stages("mtp.%d.", c)
			w.add("mtp.0.main_proj.weight", nil, "mtp.0.main_proj.weight")
			w.add("mtp.0.main_norm.weight", nil, "mtp.0.main_norm.weight")
			for name, of := range map[string]string{"norm.weight": "norm.weight", "hc_head_fn.weight": "hc_head_fn",
				"hc_head_base.weight": "hc_head_base", "hc_head_scale.weight": "hc_head_scale",
				"markov_head.markov_w1.weight": "markov_head.markov_w1.weight",
				"markov_head.markov_w2.weight": "markov_head.markov_w2.weight",
				"confidence_head.proj.weight":  "confidence_head.proj.weight"} {
				w.add(last+name, nil, last+of)
			}
			return []gguf.Pair{{Key: "dspark.block_size", Value: uint32(d.Block)},
				{Key: "dspark.target_layer_ids", Value: ids(0)},
				{Key: "dspark.noise_token_id", Value: uint32(d.Noise)}}
		},
	} {
		t.Run(dialect, func(t *testing.T) {
			w := &headWriter{t: t, from: src.Weights}
			pairs := append([]gguf.Pair{{Key: "general.architecture", Value: dialect}}, write(w)...)
			head := filepath.Join(folder, "dspark-model.gguf")
			if _, err := gguf.Create(head, pairs, w.out); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(head)
			if _, err := family.Open(head); err == nil || !strings.Contains(err.Error(), "folder of the GGUF file") {
				t.Errorf("a head alone: %v", err)
			}
			got, err := family.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer got.Close()
			have := got.Model.(*config.V4).DSpark
			if have == nil || have.Block != d.Block || have.Rank != d.Rank || have.Noise != d.Noise ||
				have.Stages != d.Stages || !slices.Equal(have.Taps, d.Taps) {
				t.Fatalf("the head is %+v, want %+v", have, d)
			}
			for _, name := range src.Weights.Names() {
				switch {
				case !strings.HasPrefix(name, "mtp."):
				case strings.Contains(name, "confidence") && dialect == "dflash": // this tensor was not written
					if v := values(t, got.Weights, name); slices.Max(v) != 0 || slices.Min(v) != 0 {
						t.Errorf("%s is not zero", name)
					}
				case !slices.Equal(values(t, got.Weights, name), values(t, src.Weights, name)):
					t.Errorf("values of %s differ", name)
				}
			}
			dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
			if err != nil {
				t.Fatal(err)
			}
			defer dev.Close()
			m, err := got.Load(dev, nil)
			if err != nil {
				t.Fatal(err)
			}
			if err := m.(model.Drafter).DraftHead(); err != nil || len(got.Skipped) > 0 {
				t.Errorf("drafts: %v, skipped %q", err, got.Skipped)
			}
			second := filepath.Join(folder, "other-dspark.gguf")
			if _, err := gguf.Create(second, pairs, w.out); err != nil {
				t.Fatal(err)
			}
			defer os.Remove(second)
			if _, err := family.Open(path); err == nil || !strings.Contains(err.Error(), "keep one") {
				t.Errorf("two heads: %v", err)
			}
		})
	}
	// The cases are another drafter with llama.cpp's architecture name, and a head with a tensor that nothing reads.
	for want, sources := range map[string]func(w *headWriter){
		"markov_w1": func(w *headWriter) { w.add("blk.0.attn_norm.weight", nil, "mtp.0.attn_norm.weight") },
		"tensor blk.0.attn_other.weight is unknown": func(w *headWriter) {
			w.add("blk.0.attn_other.weight", nil, "mtp.0.attn_norm.weight")
			w.add("markov_w1.weight", nil, last+"markov_head.markov_w1.weight")
		},
	} {
		w := &headWriter{t: t, from: src.Weights}
		sources(w)
		head := filepath.Join(folder, "dflash-model.gguf")
		if _, err := gguf.Create(head, []gguf.Pair{{Key: "general.architecture", Value: "dflash"},
			{Key: "dflash.block_size", Value: uint32(5)}, {Key: "dflash.target_layers", Value: ids(1)},
			{Key: "tokenizer.ggml.mask_token_id", Value: uint32(7)}}, w.out); err != nil {
			t.Fatal(err)
		}
		if _, err := family.Open(path); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
		os.Remove(head)
	}
	if s, err := family.Open(path); err != nil || s.Model.(*config.V4).DSpark != nil {
		t.Errorf("without a head: %v", err)
	} else {
		s.Close()
	}
}
