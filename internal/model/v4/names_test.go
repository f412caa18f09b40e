package v4_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/v4"
	"sparrow/internal/testkit/steps"
	"sparrow/plan"
	"sparrow/weight"
)

// checkpoint holds the tensors of the reference checkpoint by their official names, to be written in another spelling.
type checkpoint struct {
	*testing.T
	tensors map[string]weight.Source
	data    map[string][]byte
}

// exceptions lists the tensors whose mixed name is not "model." followed by the official name (v4 spec, 5).
var exceptions = [][2]string{
	{"model.embed_tokens.weight", "embed.weight"}, {"head.weight", "head.weight"}, {"model.norm.weight", "norm.weight"},
	{"model.hc_head.hc_fn", "hc_head_fn"}, {"model.hc_head.hc_base", "hc_head_base"},
	{"model.hc_head.hc_scale", "hc_head_scale"},
}

func readOracle(t *testing.T) *checkpoint {
	t.Helper()
	w, err := weight.Open(oracle)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { w.Close() })
	c := &checkpoint{T: t, tensors: map[string]weight.Source{}, data: map[string][]byte{}}
	for _, name := range w.Names() {
		x, _ := w.Tensor(name)
		as := strings.TrimPrefix(name, "model.")
		if strings.HasSuffix(as, ".attn.norm.weight") {
			as = strings.TrimSuffix(as, "norm.weight") + "kv_norm.weight"
		}
		for _, e := range exceptions {
			if e[0] == name {
				as = e[1]
			}
		}
		c.set(as, x.DType, x.Shape, x.Data)
	}
	return c
}

func (c *checkpoint) set(name string, d weight.DType, shape []int, data []byte) {
	c.tensors[name], c.data[name] = weight.SourceBytes(name, d, slices.Clone(shape), data), data
}

func (c *checkpoint) remove(name string) { delete(c.tensors, name); delete(c.data, name) }

// write writes a checkpoint folder with every tensor renamed and with changes to the config, and returns the folder.
func (c *checkpoint) write(rename func(string) string, changes map[string]any) string {
	c.Helper()
	dir := c.TempDir()
	var list []weight.Source
	for name, s := range c.tensors {
		s.Name = rename(name)
		list = append(list, s)
	}
	slices.SortFunc(list, func(a, b weight.Source) int { return strings.Compare(a.Name, b.Name) })
	if err := weight.Create(filepath.Join(dir, "model.safetensors"), list, nil); err != nil {
		c.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(oracle, "config.json"))
	if err != nil {
		c.Fatal(err)
	}
	var fields map[string]any
	if err := json.Unmarshal(text, &fields); err != nil {
		c.Fatal(err)
	}
	for k, v := range changes {
		fields[k] = v
	}
	if text, err = json.Marshal(fields); err != nil {
		c.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text, 0o644); err != nil {
		c.Fatal(err)
	}
	return dir
}

func sameName(name string) string { return name }

// hugging maps the official spelling to the transformers spelling (table of the v4 spec, 5).
var hugging = [][2]string{
	{`^embed\.`, "model.embed_tokens."}, {`^head\.`, "lm_head."}, {`^norm\.`, "model.norm."},
	{`^hc_head_`, "model.hc_head.hc_"}, {`^layers\.`, "model.layers."}, {`\.hc_(attn|ffn)_`, ".${1}_hc."},
	{`\.attn_norm\.`, ".input_layernorm."}, {`\.ffn_norm\.`, ".post_attention_layernorm."},
	{`\.attn\.attn_sink`, ".attn.sinks"}, {`\.indexer\.weights_proj`, ".indexer.scorer.weights_proj"},
	{`\.indexer\.compressor\.`, ".compressor.indexer."}, {`\.attn\.indexer\.`, ".attn.compressor.indexer."},
	{`(\.compressor\..*)wkv`, "${1}kv_proj"}, {`(\.compressor\..*)wgate`, "${1}gate_proj"},
	{`(\.compressor\..*)ape`, "${1}position_bias"}, {`(\.compressor\..*)\bnorm`, "${1}kv_norm"},
	{`\.wq_a\.`, ".q_a_proj."}, {`\.q_norm\.`, ".q_a_norm."}, {`\.wq_b\.`, ".q_b_proj."}, {`\.wkv\.`, ".kv_proj."},
	{`\.wo_([ab])\.`, ".o_${1}_proj."}, {`\.gate\.bias$`, ".gate.e_score_correction_bias"}, {`\.attn\.`, ".self_attn."},
	{`\.ffn\.`, ".mlp."}, {`\.shared_experts\.w1\.`, ".shared_experts.gate_proj."},
	{`\.shared_experts\.w3\.`, ".shared_experts.up_proj."}, {`\.shared_experts\.w2\.`, ".shared_experts.down_proj."},
}

func huggingName(name string) string {
	for _, r := range hugging {
		name = regexp.MustCompile(r[0]).ReplaceAllString(name, r[1])
	}
	return name
}

// stack joins the experts of every layer as transformers does: one tensor has the gate and up matrices of each expert
// stacked, the other the down matrices.
func (c *checkpoint) stack(layers, experts, inner, hidden int) {
	for l := range layers {
		var up, down []byte
		for e := range experts {
			at := func(w string) string { return fmt.Sprintf("layers.%d.ffn.experts.%d.%s.weight", l, e, w) }
			up = append(append(up, c.data[at("w1")]...), c.data[at("w3")]...)
			down = append(down, c.data[at("w2")]...)
			for _, w := range []string{"w1", "w2", "w3"} {
				c.remove(at(w))
			}
		}
		c.set(fmt.Sprintf("layers.%d.ffn.experts.gate_up_proj", l), weight.BF16, []int{experts, 2 * inner, hidden}, up)
		c.set(fmt.Sprintf("layers.%d.ffn.experts.down_proj", l), weight.BF16, []int{experts, hidden, inner}, down)
	}
}

// logits runs a short prompt and returns its logits.
func logits(t *testing.T, dir, kernels string) [][]float32 {
	t.Helper()
	b := steps.New(t, steps.Open[*v4.Model](t, dir, kernels), plan.Policy{KV: "f32"})
	return b.Chunks(b.Sequence(1, 20), 0)
}

// The three spellings of a checkpoint give the same model. A drafting block that the config does not declare is
// ignored.
func TestSpellingsAreOneModel(t *testing.T) {
	want := logits(t, oracle, "cpu")
	b := &steps.Bench{TB: t}
	official := readOracle(t)
	official.set("mtp.0.enorm.weight", weight.BF16, []int{128}, make([]byte, 256))
	b.SameBits("official names", logits(t, official.write(sameName, nil), "cpu"), want)
	hf := readOracle(t)
	hf.stack(6, 8, 64, 128)
	b.SameBits("transformers names", logits(t, hf.write(huggingName, nil), "cpu"), want)
	b.SameBits("transformers names, the indexer's compressor separate", logits(t, hf.write(func(name string) string {
		return regexp.MustCompile(`\.indexer\.(kv_proj|gate_proj|position_bias|kv_norm)`).ReplaceAllString(
			huggingName(name), ".indexer.compressor.$1")
	}, nil), "cpu"), want)
}

// The error lists every tensor that is missing, misshapen or unexpected at once.
func TestLoadReportsEverything(t *testing.T) {
	c := readOracle(t)
	c.remove("layers.3.attn.compressor.ape")
	c.remove("layers.0.ffn.gate.tid2eid")
	c.set("layers.1.attn.attn_sink", weight.F32, []int{5}, make([]byte, 20))
	c.set("layers.2.attn.compressor.ape", weight.F32, []int{4, 512}, make([]byte, 8192))
	c.set("layers.5.ffn.gate.tid2eid", weight.I32, []int{640, 2}, make([]byte, 5120))
	c.set("layers.1.ffn.gate.tid2eid", weight.I32, []int{640, 2}, bytes.Repeat([]byte{8, 0, 0, 0}, 1280))
	dir := c.write(sameName, nil)
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	m, err := src.Load(steps.Device(t, "cpu"), nil)
	if err == nil || m != nil {
		t.Fatalf("a damaged checkpoint gives %v, %v", m, err)
	}
	for _, want := range []string{
		nn.ErrTensors.Error(), "6 problems", "missing layers.3.attn.compressor.ape, want shape [128 512]",
		"missing layers.0.ffn.gate.tid2eid, want shape [640 2]", "layers.1.attn.attn_sink has shape [5], want [4]",
		"layers.2.attn.compressor.ape has shape [4 512], want [4 1024]", "unexpected layers.5.ffn.gate.tid2eid",
		"layers.1.ffn.gate.tid2eid[0][0] is 8, want 0 to 7",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("no %q in\n%v", want, err)
		}
	}
}

func TestFactsFollowTheConfig(t *testing.T) {
	d, err := config.Read(oracle)
	if err != nil {
		t.Fatal(err)
	}
	f, err := family.Facts(d)
	if err != nil {
		t.Fatal(err)
	}
	if f.Family != plan.DeepSeekV4 || f.Window != 128 || f.K != 64 ||
		!slices.Equal(f.Ratios, []int{0, 0, 4, 128, 4, 128}) {
		t.Errorf("facts %+v", f)
	}
}
