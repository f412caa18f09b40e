package shard_test

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/device/group"
	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/synth"
	"sparrow/internal/step"
	"sparrow/internal/testkit/testflag"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/record"
)

// Invariants of this file: a model on 2 and 4 ranks has the logits of one device except for rounding, and chooses the
// same keys and experts; all ranks have the same bytes; a number of ranks that does not divide the model is refused,
// with the numbers that do.

// dsa is a config of DeepSeek-V3.2 or GLM-5 with four heads, dense and expert layers and a drafting layer.
const dsa = `{
	"architectures": ["%s"], "model_type": "%s",
	"vocab_size": 320, "hidden_size": 128, "intermediate_size": 512, "moe_intermediate_size": 128,
	"num_hidden_layers": 3, "first_k_dense_replace": 1, "moe_layer_freq": 1,
	"num_attention_heads": 4, "num_key_value_heads": 4, "q_lora_rank": 64, "kv_lora_rank": 512,
	"qk_nope_head_dim": 64, "qk_rope_head_dim": 64, "v_head_dim": 64,
	"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "n_group": 2, "topk_group": 1,
	"scoring_func": "sigmoid", "topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16, %s
	"rms_norm_eps": 1e-06, "max_position_embeddings": 4096, "rope_theta": 10000,
	"num_nextn_predict_layers": 1, "attention_bias": false, "tie_word_embeddings": %v, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

// dual is a config of DeepSeek-V4 with four heads in four groups, one layer of each kind and a drafting block.
const dual = `{
	"architectures": ["DeepseekV4ForCausalLM"], "model_type": "deepseek_v4",
	"vocab_size": 320, "hidden_size": 128, "moe_intermediate_size": 128,
	"num_hidden_layers": 3, "compress_ratios": [0, 4, 128], "num_hash_layers": 1,
	"num_attention_heads": 4, "num_key_value_heads": 1, "head_dim": 512, "qk_rope_head_dim": 64,
	"q_lora_rank": 64, "o_lora_rank": 128, "o_groups": 4, "sliding_window": 128,
	"n_routed_experts": 8, "n_shared_experts": 1, "num_experts_per_tok": 2, "scoring_func": "sqrtsoftplus",
	"topk_method": "noaux_tc", "norm_topk_prob": true, "routed_scaling_factor": 1.5, "swiglu_limit": 10.0,
	"index_n_heads": 2, "index_head_dim": 128, "index_topk": 16,
	"hc_mult": 4, "hc_sinkhorn_iters": 4, "hc_eps": 1e-06, "rms_norm_eps": 1e-06,
	"max_position_embeddings": 4096, "rope_theta": 10000, "compress_rope_theta": 160000,
	"rope_scaling": {"type": "yarn", "factor": 16, "original_max_position_embeddings": 1024, "beta_fast": 32,
		"beta_slow": 1},
	"num_nextn_predict_layers": 1, "attention_bias": false, "tie_word_embeddings": false, "hidden_act": "silu",
	"bos_token_id": 0, "eos_token_id": 1
}`

var configs = map[string]string{
	"v32":      fmt.Sprintf(dsa, "DeepseekV32ForCausalLM", "deepseek_v32", "", false),
	"v32-tied": fmt.Sprintf(dsa, "DeepseekV32ForCausalLM", "deepseek_v32", "", true),
	"glm": fmt.Sprintf(dsa, "GlmMoeDsaForCausalLM", "glm_moe_dsa",
		`"indexer_types": ["full", "full", "shared"],`, false),
	"three": fmt.Sprintf(strings.NewReplacer(`_heads": 4`, `_heads": 3`, `key_value_heads": 4`, `key_value_heads": 3`).
		Replace(dsa), "DeepseekV32ForCausalLM", "deepseek_v32", "", false),
	"v4-three": strings.NewReplacer(`_heads": 4`, `_heads": 3`, `"o_groups": 4`, `"o_groups": 3`).Replace(dual),
	"v4":       dual,
	"v4-pairs": strings.Replace(dual, `"o_groups": 4`, `"o_groups": 2`, 1),
	// DeepSeek-V4.1 with four heads in four groups.
	"v41": strings.NewReplacer(`_attention_heads": 2`, `_attention_heads": 4`, `"o_groups": 2`, `"o_groups": 4`,
		`"n_routed_experts": 4`, `"n_routed_experts": 8`).Replace(testmodel.V41Config),
	"odd": fmt.Sprintf(strings.Replace(dsa, "320", "322", 1), "DeepseekV32ForCausalLM", "deepseek_v32", "", false),
}

// checkpoint writes a checkpoint with random weights and returns it.
func checkpoint(t *testing.T, name string, o synth.Options) *family.Source {
	t.Helper()
	one := 1
	if o.Seed = 11; name != "v41" { // other models have no such layer
		o.NextN = &one
	}
	c, err := synth.New(name, []byte(configs[name]), o)
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), name)
	if err := c.Write(t.Context(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

func device(t *testing.T) kernel.Device {
	t.Helper()
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1, Precise: true})
	if err != nil {
		t.Fatal(err)
	}
	return dev
}

func devices(t *testing.T, n int) *group.Group {
	t.Helper()
	var list []kernel.Device
	for range n {
		list = append(list, device(t))
	}
	g, err := group.New(list, group.Options{Compare: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { g.Close() })
	return g
}

// load loads a model on one device, or on several ranks.
func load(t *testing.T, src *family.Source, ranks int, how plan.Division) model.Model {
	t.Helper()
	var m model.Model
	var err error
	if ranks == 1 {
		dev := device(t)
		t.Cleanup(func() { dev.Close() })
		m, err = src.Load(dev, nil)
	} else {
		m, err = src.LoadRanks(devices(t, ranks), how, nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return m
}

// outcome is the result of a run.
type outcome struct {
	logits   [][]float32
	selected [][]int32   // selection of each recorded row and layer
	scores   [][]float32 // of these
	blocks   [][]int32   // selected for later layers
	experts  [][]int32
}

// take appends the choices of the next recorded row, which attends to the given number of tokens.
func (o *outcome) take(res step.Result, row, seen int, s *record.Shape) {
	for l := range s.Layers {
		o.selected = append(o.selected, slices.Clone(res.Selected(l, row)))
		o.scores = append(o.scores, slices.Clone(res.Scores(l, row)))
		if s.Blocks > 0 && l == s.BlockLayer && s.Visible(l, seen) > s.Blocks*s.BlockKeys {
			o.blocks = append(o.blocks, slices.Clone(res.Blocks(l, row)))
		}
		ids, _ := res.Experts(l, row)
		o.experts = append(o.experts, slices.Clone(ids))
	}
}

// compute runs two sequences: a prompt in two chunks, drafts, a verify pass and decodes, all recorded.
func compute(t *testing.T, m model.Model) *outcome {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	policy, drafts := plan.Policy{KV: "f32"}, m.Config().NextN > 0
	if drafts {
		policy.Speculation.Tokens = 3
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), policy)
	if err != nil {
		t.Fatal(err)
	}
	const pages = 12
	if err := m.Allocate(&cfg, pages); err != nil {
		t.Fatal(err)
	}
	record := plan.Record{Selections: true, Scores: true, Experts: true}
	r, err := step.New(m, cfg, step.Limits{Rows: 256, Requests: 4, Context: 512, Record: record})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(r.Close)
	states := make([]model.State, 2)
	if s, ok := m.(model.Stateful); ok {
		for i := range states {
			if states[i], err = s.NewState(); err != nil {
				t.Fatal(err)
			}
			defer states[i].Release()
		}
	}
	out := &outcome{}
	facts := m.Facts()
	rank := func(i int) int { // sequence 0 is on the first rank, sequence 1 on the last
		if facts.ByRequests() {
			return i * (facts.Ranks - 1)
		}
		return 0
	}
	table := func(i int) []int32 {
		at := int32(rank(i)*pages + 5*i)
		return []int32{at + 1, at, at + 3, at + 2}
	}
	shape := facts.Choices()
	run := func(works ...step.Work) {
		t.Helper()
		for i := range works {
			works[i].Record, works[i].RecordTo = record, len(works[i].Tokens)
		}
		res, err := r.Run(works)
		if err != nil {
			t.Fatal(err)
		}
		n, row := 0, 0
		for _, w := range works {
			for range w.Logits {
				out.logits = append(out.logits, slices.Clone(res.Row(n)))
				n++
			}
			for i := range w.Tokens {
				out.take(res, row, w.Cached+i+1, &shape)
				row++
			}
		}
	}
	text := func(seed, n int) []int32 {
		list := make([]int32, n)
		for i := range list {
			list[i] = int32((i*i*7 + i*31*seed + seed*977 + 2) % 320)
		}
		return list
	}
	a, b := text(1, 90), text(2, 60)
	// of returns the work with the data of a sequence added.
	var said [2][]int32
	of := func(i int, w step.Work) step.Work {
		w.Rank, w.Pages, w.State, w.Before = rank(i), table(i), states[i], said[i]
		said[i] = append(slices.Clone(said[i]), w.Tokens...)
		return w
	}
	draft := func(i int, d step.Draft) step.Draft {
		d.Rank, d.Pages, d.State, d.Logits, d.From = rank(i), table(i), states[i], true, i
		return d
	}
	run(of(0, step.Work{Kind: plan.ModeExtend, Tokens: a[:30]}))
	run(of(0, step.Work{Kind: plan.ModeExtend, Tokens: a[30:70], Cached: 30}), // the sequences are at other positions
		of(1, step.Work{Kind: plan.ModeExtend, Tokens: b, Logits: 1}))
	run(of(0, step.Work{Kind: plan.ModeExtend, Tokens: a[70:], Cached: 70, Logits: 1}),
		of(1, step.Work{Kind: plan.ModeDecode, Tokens: text(3, 1), Cached: 60, Logits: 1}))
	if !drafts {
		run(of(0, step.Work{Kind: plan.ModeDecode, Tokens: text(7, 1), Cached: 90, Logits: 1}),
			of(1, step.Work{Kind: plan.ModeDecode, Tokens: text(8, 1), Cached: 61, Logits: 1}))
		checkPages(t, m, pages)
		return out
	}
	res, err := r.Draft([]step.Draft{
		draft(0, step.Draft{Kind: plan.ModeExtend, Tokens: text(4, 20), Cached: 70}),
		draft(1, step.Draft{Kind: plan.ModeDraft, Tokens: text(5, 1), Cached: 60}),
	}, false)
	if err != nil {
		t.Fatal(err)
	}
	out.logits = append(out.logits, slices.Clone(res.Row(0)), slices.Clone(res.Row(1)))
	res, err = r.Draft([]step.Draft{
		draft(1, step.Draft{Kind: plan.ModeDraft, Tokens: text(6, 1), Cached: 61})}, true)
	if err != nil {
		t.Fatal(err)
	}
	out.logits = append(out.logits, slices.Clone(res.Row(0)))
	run(of(0, step.Work{Kind: plan.ModeVerify, Tokens: text(7, 3), Cached: 90, Logits: 3}),
		of(1, step.Work{Kind: plan.ModeVerify, Tokens: text(8, 3), Cached: 61, Logits: 3}))
	checkPages(t, m, pages)
	return out
}

// checkPages reads all pages and thereby checks them, because the group refuses bytes that differ between ranks.
func checkPages(t *testing.T, m model.Model, pages int) {
	t.Helper()
	for p := range pages {
		parts := m.(model.Paged).WindowParts(m.(model.Paged).PageParts(nil, p), p)
		for _, x := range parts {
			if err := m.Device().Read(make([]byte, x.Cols), x); err != nil {
				t.Fatalf("page %d: %v", p, err)
			}
		}
	}
}

func TestRanksComputeWhatOneDeviceDoes(t *testing.T) {
	for _, name := range []string{"v32", "v32-tied", "glm", "v4", "v41"} {
		for _, kind := range []synth.DType{synth.BF16, synth.FP8} {
			t.Run(fmt.Sprintf("%s/%v", name, kind), func(t *testing.T) {
				src := checkpoint(t, name, synth.Options{DType: kind})
				want := compute(t, load(t, src, 1, 0))
				for _, c := range []struct {
					ranks int
					how   plan.Division
				}{{2, plan.ByHeads}, {4, plan.ByHeads}, {4, plan.ByRequests}} {
					if (kind == synth.BF16) != (c.ranks == 2) && !*testflag.Long {
						continue // blocks of scales are harder to divide, and so are models among more ranks
					}
					compare(t, c.ranks, compute(t, load(t, src, c.ranks, c.how)), want)
				}
			})
		}
	}
}

// If the number of heads does not divide by the ranks, the last ranks are padded with zero heads. The padding may be
// whole groups of heads or part of a group, also inside blocks of scales.
func TestRanksWithPaddedHeads(t *testing.T) {
	for _, c := range []struct {
		name          string
		kind          synth.DType
		ranks, padded int
	}{
		{"v32", synth.BF16, 8, 4}, {"v32", synth.FP8, 8, 4}, {"three", synth.BF16, 2, 1}, {"three", synth.FP8, 2, 1},
		{"glm", synth.FP8, 8, 4}, {"v4", synth.FP8, 8, 4}, {"v4-pairs", synth.BF16, 4, 4},
		{"v4-three", synth.FP8, 2, 1},
	} {
		t.Run(fmt.Sprintf("%s/%v/%d ranks", c.name, c.kind, c.ranks), func(t *testing.T) {
			src := checkpoint(t, c.name, synth.Options{DType: c.kind})
			want := compute(t, load(t, src, 1, 0))
			m := load(t, src, c.ranks, plan.ByHeads)
			if got := m.Facts().PaddedHeads; got != c.padded {
				t.Errorf("%d heads of padding, want %d", got, c.padded)
			}
			compare(t, c.ranks, compute(t, m), want)
		})
	}
}

func compare(t *testing.T, ranks int, got, want *outcome) {
	t.Helper()
	for i, row := range want.logits {
		var diff, size float64
		for c, v := range row {
			d := float64(got.logits[i][c] - v)
			diff, size = diff+d*d, size+float64(v)*float64(v)
		}
		if share := math.Sqrt(diff / size); !(share < 2e-4) {
			t.Errorf("%d ranks: row %d of logits differs by %.2g of its size", ranks, i, share)
		}
	}
	if len(got.blocks) != len(want.blocks) {
		t.Fatalf("%d ranks: %d rows have blocks for later layers, want %d", ranks, len(got.blocks), len(want.blocks))
	}
	for i, row := range want.blocks {
		if !slices.Equal(got.blocks[i], row) {
			t.Errorf("%d ranks: blocks %d are %v, want %v", ranks, i, got.blocks[i], row)
		}
	}
	for i := range want.selected {
		for k, v := range want.scores[i] {
			if k >= len(want.selected[i]) || want.selected[i][k] < 0 {
				continue // nothing is selected, and the score is that of an earlier pass
			}
			if math.Abs(float64(got.scores[i][k]-v)) > 1e-3*max(1, math.Abs(float64(v))) {
				t.Errorf("%d ranks: score %d of selection %d is %v, want %v", ranks, k, i, got.scores[i][k], v)
			}
		}
		if !slices.Equal(got.selected[i], want.selected[i]) {
			t.Errorf("%d ranks: selection %d is %v, want %v", ranks, i, got.selected[i], want.selected[i])
		}
		if !slices.Equal(got.experts[i], want.experts[i]) {
			t.Errorf("%d ranks: experts %d are %v, want %v", ranks, i, got.experts[i], want.experts[i])
		}
	}
}

func TestRanksThatDoNotDivide(t *testing.T) {
	for _, c := range []struct {
		name  string
		ranks int
		how   plan.Division
		is    error
		says  string
	}{
		{"v32", 3, 0, plan.E08, "8 experts in equal parts on 3 ranks; supported: 1, 2, 4, 8 ranks; try 2 ranks"},
		{"v32", 6, plan.ByRequests, plan.E08, "8 experts in equal parts on 6 ranks; supported: 1, 2, 4, 8 ranks"},
		{"odd", 4, 0, nn.ErrTensors,
			"lm_head.weight has 322 rows, which 4 ranks cannot share; use a number of ranks from 1, 2, 7, 14, 23, 46"},
		{"v4", 5, plan.ByHeads, plan.E08, "8 experts in equal parts on 5 ranks"},
	} {
		_, err := checkpoint(t, c.name, synth.Options{}).LoadRanks(devices(t, c.ranks), c.how, nil)
		if !errors.Is(err, c.is) || !strings.Contains(fmt.Sprint(err), c.says) {
			t.Errorf("%s on %d ranks: %v", c.name, c.ranks, err)
		}
	}
}
