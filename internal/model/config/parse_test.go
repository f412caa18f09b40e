package config

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// All spellings of config.json that are in use give the same Config.
func TestSpellingsAgree(t *testing.T) {
	merged := func(changes ...fields) fields {
		return yarn(append([]fields{{"type": absent, "rope_type": "yarn", "rope_theta": 10000}}, changes...)...)
	}
	dense := make([]string, 61)
	for i := range dense {
		dense[i] = "sparse"
		if i < 3 {
			dense[i] = "dense"
		}
	}
	want := parse(t, v32())
	for _, c := range []struct {
		name string
		f    fields
	}{
		{"rope_type instead of type", v32(fields{"rope_scaling": yarn(fields{"type": absent, "rope_type": "yarn"})})},
		{"rope_parameters", v32(fields{"rope_theta": absent, "rope_scaling": absent, "rope_parameters": merged()})},
		{"rope_parameters, theta at the top level too",
			v32(fields{"rope_scaling": absent, "rope_parameters": merged()})},
		{"rope_parameters, theta only at the top level",
			v32(fields{"rope_scaling": absent, "rope_parameters": merged(fields{"rope_theta": absent})})},
		{"default betas left out", v32(fields{"rope_scaling": yarn(fields{"beta_fast": absent, "beta_slow": absent})})},
		{"saved by transformers 5",
			v32(fields{"rope_theta": absent, "rope_scaling": absent, "rope_parameters": merged(),
				"scoring_func": absent, "topk_method": absent, "moe_layer_freq": absent, "norm_topk_prob": absent,
				"mlp_layer_types": dense, "first_k_dense_replace": absent,
				"layer_types": []string{"deepseek_sparse_attention"}, "qk_head_dim": 192, "head_dim": 64,
				"dtype": "bfloat16"})},
		{"explicit defaults",
			v32(fields{"rope_interleave": true, "indexer_rope_interleave": false, "indexer_types": nil,
				"index_topk_pattern": nil, "index_topk_freq": 1, "mlp_bias": false, "hidden_act": absent})},
		{"eos in a list", v32(fields{"eos_token_id": []int{1}})},
		{"head_dim says something else", v32(fields{"head_dim": 192})},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(want, parse(t, c.f)); d != "" {
				t.Errorf("not the released model (-released +got):\n%s", d)
			}
		})
	}
}

// quantization_config states the format of FP8 matrices and of the rows that they multiply.
func TestQuantization(t *testing.T) {
	for _, c := range []struct {
		name      string
		in        any
		fp8, pow2 bool
	}{
		{"none", absent, false, false},
		{"blocks", fields{"quant_method": "fp8", "weight_block_size": []int{128, 128}}, true, false},
		{"rows in powers of two", fields{"quant_method": "fp8", "scale_fmt": "ue8m0",
			"weight_block_size": []int{128, 128}}, true, true},
	} {
		if got := parse(t, v32(fields{"quantization_config": c.in})); got.FP8 != c.fp8 || got.Pow2Rows != c.pow2 {
			t.Errorf("%s: FP8 %v, rows in powers of two %v", c.name, got.FP8, got.Pow2Rows)
		}
	}
}

// In newer GLM configs theta is inside rope_parameters, and that value overrides an outdated value outside of it.
func TestThetaInsideRopeParameters(t *testing.T) {
	if got := parse(t,
		glm(fields{"rope_parameters": fields{"rope_theta": 8e6, "rope_type": "default"}})).Rope; got.Theta != 8e6 ||
		got.Yarn != nil {
		t.Errorf("rope is %+v, want plain with theta 8e6", got)
	}
	if got := parse(t, glm(fields{"rope_theta": 10000})).Rope.Theta; got != 1e6 {
		t.Errorf("theta is %v, want 1e6 of rope_parameters", got)
	}
}

func TestReleasedModels(t *testing.T) {
	a := parse(t, v32())
	b := parse(t, glm())
	for _, c := range []struct {
		name      string
		got, want any
	}{
		{"v3.2 family", a.Family, DeepseekV32},
		{"v3.2 attention", a.Attention, Attention{Heads: 128, QLora: 1536, Latent: 512, Nope: 128, Rope: 64, V: 128}},
		{"v3.2 query and key", a.Attention.QK(), 192},
		{"v3.2 indexer pairs halves", a.Indexer.Interleaved, false},
		{"v3.2 eps", []float32{a.RMSEps, a.LatentEps}, []float32{1e-6, 1e-6}},
		{"v3.2 drafting layers", a.NextN, 1},
		{"v3.2 ids", []int{*a.BOS, a.EOS[0], *a.Pad}, []int{0, 1, 2}},
		{"v3.2 dense layers", a.FFN.Dense[:5], []bool{true, true, true, false, false}},
		{"v3.2 groups", []int{a.FFN.Groups, a.FFN.KeepGroups, a.FFN.TopK}, []int{8, 4, 8}},
		{"v3.2 scale of routed experts", a.FFN.Scale, float32(2.5)},
		{"glm family", b.Family, GLMMoeDSA},
		{"glm query and key", b.Attention.QK(), 256},
		{"glm indexer interleaves", b.Indexer.Interleaved, true},
		{"glm eps; its latent norms have their own", []float32{b.RMSEps, b.LatentEps}, []float32{1e-5, 1e-6}},
		{"glm has no bos", b.BOS == nil, true},
		{"glm eos", b.EOS, []int{154820, 154827, 154829}},
	} {
		if d := cmp.Diff(c.want, c.got); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// An absent field has a default that depends at most on the family.
func TestAbsentFields(t *testing.T) {
	gone := fields{"scoring_func": absent, "topk_method": absent, "moe_layer_freq": absent, "rope_interleave": absent,
		"indexer_rope_interleave": absent, "num_nextn_predict_layers": absent, "norm_topk_prob": absent,
		"routed_scaling_factor": absent, "n_group": absent, "topk_group": absent, "n_shared_experts": absent,
		"num_key_value_heads": absent, "first_k_dense_replace": absent, "bos_token_id": absent, "eos_token_id": absent,
		"pad_token_id": absent, "tie_word_embeddings": absent, "attention_bias": absent, "hidden_act": absent}
	a, b := parse(t, v32(gone)), parse(t, glm(gone))
	if a.Indexer.Interleaved || !b.Indexer.Interleaved {
		t.Errorf("the indexer interleaves: v3.2 %v, glm %v; want false, true", a.Indexer.Interleaved,
			b.Indexer.Interleaved)
	}
	for _, c := range []*DSA{a, b} {
		f := c.FFN
		if f.Groups != 1 || f.KeepGroups != 1 || f.Shared != 0 || f.Scale != 1 || !f.Normalize || f.Dense[0] {
			t.Errorf("%s: feed-forward defaults %+v", c.Family, f)
		}
		if c.NextN != 0 || c.BOS != nil || c.EOS != nil || c.Pad != nil || c.TiedHead {
			t.Errorf("%s: defaults NextN %d BOS %v EOS %v Pad %v tied %v", c.Family, c.NextN, c.BOS, c.EOS, c.Pad,
				c.TiedHead)
		}
	}
	if !parse(t, v32(fields{"indexer_rope_interleave": true})).Indexer.Interleaved {
		t.Error("an explicit pairing of the indexer is not kept")
	}
}

func TestEndOfSequence(t *testing.T) {
	for _, c := range []struct {
		name string
		v    any
		want []int
	}{{"a number", 7, []int{7}}, {"a list", []int{3, 4}, []int{3, 4}}, {"null", nil, nil}, {"absent", absent, nil}} {
		if d := cmp.Diff(c.want, parse(t, v32(fields{"eos_token_id": c.v})).EOS); d != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, d)
		}
	}
}

// full returns the layers that compute their own selection.
func full(c *DSA) []int {
	var out []int
	for i := range c.Layers {
		if c.Indexer.Computes(i) {
			out = append(out, i)
		}
	}
	return out
}

func TestSharedSelections(t *testing.T) {
	six := func(changes fields) fields {
		return glm(fields{"num_hidden_layers": 6}, changes)
	}
	all := []int{0, 1, 2, 3, 4, 5}
	for _, c := range []struct {
		name string
		f    fields
		want []int
	}{
		{"not given", six(nil), all},
		{"a list", six(fields{"indexer_types": []string{"full", "shared", "full", "full", "shared", "shared"}}),
			[]int{0, 2, 3}},
		{"a pattern", six(fields{"index_topk_pattern": "FFSSFS"}), []int{0, 1, 4}},
		{"the list comes before the pattern",
			six(fields{"indexer_types": []string{"full", "full", "full", "full", "full", "shared"},
				"index_topk_pattern": "FSSSSS"}), []int{0, 1, 2, 3, 4}},
		{"the pattern comes before the frequency", six(fields{"index_topk_pattern": "FFFFFS", "index_topk_freq": 3}),
			[]int{0, 1, 2, 3, 4}},
		// The layers compute a selection where max(i-1, 0) mod 2 is 0; the values are 0 0 1 0 1 0.
		{"a frequency alone has offset 2", six(fields{"index_topk_freq": 2}), []int{0, 1, 3, 5}},
		{"frequency 1 shares nothing", six(fields{"index_topk_freq": 1, "index_skip_topk_offset": 3}), all},
		// The layers compute a selection where max(i-2, 0) mod 3 is 0; the values are 0 0 0 1 2 0.
		{"frequency and offset", six(fields{"index_topk_freq": 3, "index_skip_topk_offset": 3}), []int{0, 1, 2, 5}},
		{"an offset alone shares nothing", six(fields{"index_skip_topk_offset": 3}), all},
		{"a null pattern is none", six(fields{"index_topk_pattern": nil, "index_topk_freq": 2}), []int{0, 1, 3, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if d := cmp.Diff(c.want, full(parse(t, c.f))); d != "" {
				t.Errorf("layers with their own selection (-want +got):\n%s", d)
			}
		})
	}
	t.Run("glm-5.2", func(t *testing.T) {
		c := parse(t,
			glm(fields{"index_topk_freq": 4, "index_skip_topk_offset": 3, "index_topk_pattern": nil,
				"index_share_for_mtp_iteration": true}))
		want := []int{0, 1, 2}
		for i := 6; i <= 74; i += 4 {
			want = append(want, i)
		}
		if d := cmp.Diff(want, full(c)); d != "" || len(want) != 21 {
			t.Errorf("%d layers (-want +got):\n%s", len(want), d)
		}
		if !c.Indexer.Computes(78) {
			t.Error("the drafting layer computes no selection of its own")
		}
		if !c.Indexer.ShareDraft {
			t.Error("later draft steps do not reuse the first one's selection")
		}
	})
}

// A config with many faults lists each of them once, without the errors that only follow from them.
func TestEveryProblemAtOnce(t *testing.T) {
	f := v32(fields{
		"vocab_size": absent, "hidden_size": 0, "q_lora_rank": "many", "kv_lora_rank": 256, "rope_interleave": false,
		"index_n_heads": -1, "indexer_types": []string{"full"}, "rms_norm_eps": 0, "scoring_func": "softmax",
		"moe_layer_freq": 2, "topk_group": 9, "rope_scaling": yarn(fields{"type": "linear", "factor": "40"}),
		"hidden_act": "gelu", "num_nextn_predict_layers": 2, "eos_token_id": "two", "attention_bias": true,
		"num_key_value_heads": 8, "rope_theta": 1,
	})
	_, err := Parse("x/config.json", text(t, f))
	var p *Problems
	if !errors.As(err, &p) {
		t.Fatalf("got %v, want *Problems", err)
	}
	want := []string{
		"vocab_size is missing", "hidden_size is 0", `q_lora_rank is "many", want a whole number`,
		"kv_lora_rank is 256, want 512, as in the cache layouts", "rope_interleave is false", "index_n_heads is -1",
		"indexer_types has 1 entries, want one for each of 61 layers", "rms_norm_eps is 0", `scoring_func is "softmax"`,
		"moe_layer_freq is 2", "n_group is 8 and topk_group 9", `rope type is "linear"`,
		`rope_scaling.factor is "40", want a number`, `hidden_act is "gelu"`, "num_nextn_predict_layers is 2",
		`eos_token_id is "two", want a token id or a list of them`, "attention_bias", "num_key_value_heads is 8",
		"rope_theta is 1",
	}
	for _, w := range want {
		n := 0
		for _, l := range p.List {
			if strings.Contains(l, w) {
				n++
			}
		}
		if n != 1 {
			t.Errorf("%q is reported %d times, want once", w, n)
		}
	}
	if len(p.List) != len(want) {
		t.Errorf("%d problems, want %d:\n%v", len(p.List), len(want), err)
	}
	if !strings.Contains(err.Error(), "x/config.json: 19 problems") {
		t.Errorf("the message does not begin with file and count: %v", err)
	}
}

func TestSingleProblems(t *testing.T) {
	for _, c := range []struct {
		name string
		f    fields
		want string
	}{
		{"layer 0 shares", glm(fields{"index_topk_pattern": "S" + strings.Repeat("F", 77)}),
			"layer 0 shares its selection"},
		{"a pattern of the wrong length", glm(fields{"index_topk_pattern": "FS"}), "want 78 letters"},
		{"a pattern with a stray letter", glm(fields{"index_topk_pattern": strings.Repeat("F", 77) + "X"}),
			"want 78 letters"},
		{"an unknown indexer type",
			glm(fields{"num_hidden_layers": 1, "first_k_dense_replace": 1, "indexer_types": []string{"half"}}),
			`indexer_types[0] is "half"`},
		{"frequency zero", glm(fields{"index_topk_freq": 0}), "want a positive frequency"},
		{"an unknown mlp type", glm(fields{"num_hidden_layers": 1, "mlp_layer_types": []string{"wide"}}),
			`mlp_layer_types[0] is "wide"`},
		{"too few mlp types", glm(fields{"mlp_layer_types": []string{"dense"}}), "mlp_layer_types has 1 entries"},
		{"more dense layers than layers", glm(fields{"first_k_dense_replace": 79}),
			"first_k_dense_replace is 79, want a number of layers from zero to 78"},
		{"more experts than kept groups hold", v32(fields{"num_experts_per_tok": 129}), "only 128 experts remain"},
		{"groups that do not divide", v32(fields{"n_group": 7}), "want n_group to divide the 256 experts"},
		{"no theta anywhere", glm(fields{"rope_parameters": fields{"rope_type": "default"}}), "rope_theta is missing"},
		{"yarn without a factor", v32(fields{"rope_scaling": yarn(fields{"factor": absent})}),
			"yarn needs positive factor"},
		{"a scaling that is no object", v32(fields{"rope_scaling": "yarn"}), `rope_scaling is "yarn", want an object`},
		{"absurdly many layers", v32(fields{"num_hidden_layers": 1 << 29}),
			"num_hidden_layers is 536870912, want 1 to 4096"},
		{"an absurd selection", v32(fields{"index_topk": 1e9}), "index_topk is 1000000000, want 1 to 65536"},
		{"an absurd context", v32(fields{"max_position_embeddings": 1 << 29}), "max_position_embeddings is 536870912"},
		{"absurdly many experts", v32(fields{"n_routed_experts": 60000}), "n_routed_experts is 60000, want 1 to 4096"},
		{"an end token below the vocabulary", v32(fields{"eos_token_id": -5}), "eos_token_id is -5, want 0 to 129279"},
		{"the first token after the vocabulary", v32(fields{"eos_token_id": 129280}), "eos_token_id is 129280"},
		{"a first token above it", v32(fields{"bos_token_id": 1 << 20}), "bos_token_id is 1048576"},
		{"an absurd theta", v32(fields{"rope_theta": 1e300}), "rope_theta is 1e+300"},
		{"a negative scale", v32(fields{"routed_scaling_factor": -1}), "routed_scaling_factor is -1"},
		{"another method", v32(fields{"topk_method": "greedy"}), `topk_method is "greedy"`},
		{"another index size", v32(fields{"index_head_dim": 64}), "index_head_dim is 64"},
		{"another rope size", v32(fields{"qk_rope_head_dim": 32}), "qk_rope_head_dim is 32"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := Parse("config.json", text(t, c.f))
			var p *Problems
			if !errors.As(err, &p) || len(p.List) != 1 || !strings.Contains(p.List[0], c.want) {
				t.Errorf("got %v, want one problem with %q", err, c.want)
			}
		})
	}
}

func TestUnknownFamilyNamesTheSupported(t *testing.T) {
	for _, f := range []fields{{"model_type": "llama"}, {"model_type": 3}, {"model_type": nil}, {},
		{"hidden_size": 4}} {
		_, err := Parse("config.json", text(t, f))
		if !errors.Is(err, ErrFamily) {
			t.Errorf("%v: got %v, want ErrFamily", f, err)
			continue
		}
		for _, name := range []string{"deepseek_v32", "glm_moe_dsa"} {
			if !strings.Contains(err.Error(), name) {
				t.Errorf("%v: %v does not name %s", f, err, name)
			}
		}
	}
}

func TestRead(t *testing.T) {
	dir := t.TempDir()
	if _, err := Read(dir); !errors.Is(err, os.ErrNotExist) || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("got %v, want a missing config.json", err)
	}
	if err := os.WriteFile(filepath.Join(dir, "config.json"), text(t, v32()), 0o644); err != nil {
		t.Fatal(err)
	}
	c, err := Read(dir)
	if err != nil || c.Common().Layers != 61 {
		t.Errorf("got %v, %v", c, err)
	}
	if _, err := Parse("config.json", []byte("{")); err == nil || errors.Is(err, ErrFamily) {
		t.Errorf("text that is not JSON: %v", err)
	}
}

// For any text, Parse returns an error or a Config in which every list has the right length.
func FuzzParse(f *testing.F) {
	f.Add(text(f, v32()))
	f.Add(text(f, glm(fields{"index_topk_freq": 4, "index_skip_topk_offset": 3})))
	f.Add(text(f, glm(fields{"indexer_types": []string{"full"}, "eos_token_id": "x"})))
	f.Add([]byte(`{"model_type":"deepseek_v32","num_hidden_layers":1e9,"rope_scaling":[]}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		c, err := Parse("fuzz", data)
		if err != nil {
			if c != nil || err.Error() == "" {
				t.Fatalf("error %q with config %v", err, c)
			}
			return
		}
		if len(c.Indexer.Shared) != c.Layers || len(c.FFN.Dense) != c.Layers || !c.Indexer.Computes(0) {
			t.Fatalf("%d layers, %d sharing marks, %d dense marks", c.Layers, len(c.Indexer.Shared), len(c.FFN.Dense))
		}
		for i, v := range c.Rope.InvFreq(c.Attention.Rope) {
			if v != v {
				t.Fatalf("pair %d turns by NaN with %+v %+v", i, c.Rope, c.Rope.Yarn)
			}
		}
	})
}
