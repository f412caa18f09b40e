package config

import (
	"slices"
	"strings"
)

// DSpark describes the draft head of the newer DeepSeek-V4 releases (dspark spec, 1): drafting stages after the main
// layers, which read hidden states of some layers and propose a block of tokens in one pass.
type DSpark struct {
	Block  int   // tokens of a block
	Rank   int   // rank of the two matrices of the Markov head
	Noise  int   // id of the token that stands for tokens that are not drafted yet
	Taps   []int // layers whose outputs the stages read
	Stages int
	// Experts is the number of routed experts of a stage, and Chosen the number of experts that a row uses, if they
	// differ from those of the layers (DeepSeek-V4.1); otherwise 0.
	Experts, Chosen int
}

// rawDSpark holds the fields of a DSpark head. A release has either all or none of the first four. No release has the
// other fields; if they are present, they must have the values that all released heads use.
type rawDSpark struct {
	Block      *int    `json:"dspark_block_size"`
	Rank       *int    `json:"dspark_markov_rank"`
	Noise      *int    `json:"dspark_noise_token_id"`
	Taps       []int   `json:"dspark_target_layer_ids"`
	Markov     *string `json:"dspark_markov_head_type"`
	Confidence *bool   `json:"enable_confidence_head"`
	WithMarkov *bool   `json:"confidence_head_with_markov"`
	FromAnchor *bool   `json:"sample_from_anchor"`
}

// dspark reads the description of a DSpark head, or returns nil if there is none. In such a checkpoint,
// num_nextn_predict_layers is 1, not the number of stages.
func (b *v4Builder) dspark(c *V4) *DSpark {
	r := &b.in.rawDSpark
	if r.Block == nil && r.Rank == nil && r.Noise == nil && r.Taps == nil {
		return nil
	}
	d := &DSpark{
		Block:  b.count("dspark_block_size", r.Block, mostBlock),
		Rank:   b.positive("dspark_markov_rank", r.Rank),
		Noise:  or(r.Noise, -1),
		Taps:   r.Taps,
		Stages: len(b.in.Ratios) - c.Layers,
	}
	if r.Noise == nil {
		b.missing("dspark_noise_token_id")
	} else if d.Noise < 0 || d.Noise >= c.Vocab {
		b.addProblem("dspark_noise_token_id is %d, want a token of the vocabulary of %d", d.Noise, c.Vocab)
	}
	if len(d.Taps) == 0 {
		b.missing("dspark_target_layer_ids")
	}
	for i, l := range d.Taps {
		if l < 0 || l >= c.Layers || i > 0 && l <= d.Taps[i-1] {
			b.addProblem("dspark_target_layer_ids is %v, want ascending numbers of the %d layers", d.Taps, c.Layers)
			break
		}
	}
	if d.Stages < 1 || slices.Max(b.in.Ratios[min(c.Layers, len(b.in.Ratios)):]) != 0 {
		b.addProblem("compress_ratios has %d entries for %d layers, want one more, 0, for each stage of the DSpark "+
			"head",
			len(b.in.Ratios), c.Layers)
	}
	if kind := or(r.Markov, "vanilla"); kind != "vanilla" {
		b.addProblem("dspark_markov_head_type is %q, want \"vanilla\"", kind)
	}
	for _, x := range []struct {
		name  string
		value *bool
	}{{"enable_confidence_head", r.Confidence}, {"confidence_head_with_markov", r.WithMarkov},
		{"sample_from_anchor", r.FromAnchor}} {
		if !or(x.value, true) {
			b.addProblem("%s is false, want true, as in all released heads", x.name)
		}
	}
	c.NextN = max(d.Stages, 0)
	return d
}

// DraftBlock returns how many tokens the drafting layers propose in one pass, 0 without a DSpark head.
func (c *V4) DraftBlock() int {
	if c.DSpark == nil {
		return 0
	}
	return c.DSpark.Block
}

// mostBlock is the maximum number of tokens of a block, which are verified together with the token before; released
// heads have 5.
const mostBlock = 7

// DraftTensors reports whether a tensor belongs to the DSpark head: names that begin with mtp.K. for a stage K,
// including the tensors that only the first or the last stage has.
func (d *DSpark) DraftTensors(name string) bool {
	rest, ok := strings.CutPrefix(name, "mtp.")
	if !ok {
		return false
	}
	number, rest, ok := strings.Cut(rest, ".")
	if !ok || len(number) != 1 || number[0] < '0' || int(number[0]-'0') >= d.Stages {
		return false
	}
	stage := int(number[0] - '0')
	switch part, _, _ := strings.Cut(rest, "."); part {
	case "attn", "ffn", "attn_norm", "ffn_norm", "hc_attn_fn", "hc_attn_base", "hc_attn_scale", "hc_ffn_fn",
		"hc_ffn_base", "hc_ffn_scale":
		return true
	case "main_proj", "main_norm":
		return stage == 0
	case "norm", "hc_head_fn", "hc_head_base", "hc_head_scale", "markov_head", "confidence_head":
		return stage == d.Stages-1
	}
	return false
}
