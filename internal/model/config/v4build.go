package config

import (
	"encoding/json"
	"math"
	"reflect"
)

// rawV4 holds the fields of a V4 config.json, in both spellings.
type rawV4 struct {
	rawModel
	HeadDim    *int           `json:"head_dim"`
	OLora      *int           `json:"o_lora_rank"`
	OGroups    *int           `json:"o_groups"`
	Window     *int           `json:"sliding_window"`
	HashLayers *int           `json:"num_hash_layers"`
	Limit      *float64       `json:"swiglu_limit"`
	HCMult     *int           `json:"hc_mult"`
	HCIters    *int           `json:"hc_sinkhorn_iters"`
	HCEps      *float64       `json:"hc_eps"`
	FarTheta   *float64       `json:"compress_rope_theta"`
	Ratios     []int          `json:"compress_ratios"`
	LayerTypes []string       `json:"layer_types"`
	Rates      map[string]int `json:"compress_rates"`
	ExpertType *string        `json:"expert_dtype"`
	rawDSpark
}

// rawRopes holds the fields of rope_parameters in the transformers spelling.
type rawRopes struct {
	Main *rawRope `json:"main"`
	Far  *rawRope `json:"compress"`
}

// v4Builder converts the fields of config.json to a V4 and collects the problems.
type v4Builder struct {
	*builder
	in    rawV4
	ropes *rawRopes // nil in the official spelling
}

func (b *v4Builder) readRopes(text json.RawMessage) {
	if text == nil || string(text) == "null" {
		return
	}
	var inner map[string]json.RawMessage
	if err := json.Unmarshal(text, &inner); err != nil {
		b.mistype("rope_parameters", text, "an object")
		return
	}
	b.ropes = &rawRopes{}
	b.read("rope_parameters.", inner, reflect.ValueOf(b.ropes).Elem())
}

func (b *v4Builder) build() *V4 {
	r := &b.in
	c := &V4{Config: Config{
		Family:       DeepseekV4,
		Vocab:        b.positive("vocab_size", r.Vocab),
		Hidden:       b.positive("hidden_size", r.Hidden),
		Layers:       b.count("num_hidden_layers", r.Layers, mostLayers),
		MaxPositions: b.count("max_position_embeddings", r.MaxPositions, mostPositions),
		RMSEps:       b.small("rms_norm_eps", r.RMSEps),
		NextN:        or(r.NextN, 0),
		BOS:          r.BOS,
		EOS:          r.EOS,
		Pad:          r.Pad,
		Indexer: Indexer{
			Heads:       b.positive("index_n_heads", r.IndexHeads),
			Dim:         b.exactly("index_head_dim", r.IndexDim, 128),
			TopK:        b.count("index_topk", r.IndexTopK, mostSelected),
			Interleaved: true,
		},
	}}
	c.Hyper = Hyper{Streams: b.count("hc_mult", r.HCMult, mostStreams),
		Rounds: b.count("hc_sinkhorn_iters", r.HCIters, mostRounds), Eps: b.small("hc_eps", r.HCEps)}
	b.tokens(&c.Config)
	b.attention(c)
	b.ropeOf(c)
	b.ffn(c)
	b.fixed(c)
	return c
}

const (
	mostStreams = 16
	mostRounds  = 1 << 10
)

// fixed checks fields that must have the values of all released models, because the code assumes these values.
func (b *v4Builder) fixed(c *V4) {
	r := &b.in
	if act := or(r.Act, "silu"); act != "silu" {
		b.addProblem("hidden_act is %q, want \"silu\"", act)
	}
	if r.AttentionBias || r.MLPBias {
		b.addProblem("attention_bias and mlp_bias must be false: no released model of this family has them")
	}
	if r.Tied {
		b.addProblem("tie_word_embeddings must be false: released models of this family have a separate head")
	}
	if c.NextN < 0 || c.NextN > 1 {
		b.addProblem("num_nextn_predict_layers is %d, want 0 or 1", c.NextN)
	}
	if n := or(r.KVHeads, 1); n != 1 {
		b.addProblem("num_key_value_heads is %d, want 1", n)
	}
	if t := or(r.ExpertType, "fp4"); t != "fp4" && t != "fp8" {
		b.addProblem("expert_dtype is %q, want \"fp4\" or \"fp8\"", t)
	}
}

// exactly reads a size that must equal want, because byte layouts depend on it.
func (b *v4Builder) exactly(name string, v *int, want int) int {
	n := b.positive(name, v)
	if n != 0 && n != want {
		b.addProblem("%s is %d, want %d, as in the cache layouts", name, n, want)
	}
	return n
}

// small reads a required number between 0 and 1.
func (b *v4Builder) small(name string, v *float64) float32 {
	switch {
	case v == nil:
		b.missing(name)
		return 0
	case !(*v > 0 && *v < 1):
		b.addProblem("%s is %v, want a small positive number", name, *v)
		return 0
	}
	return float32(*v)
}

// number reads a required positive number.
func (b *v4Builder) number(name string, v *float64) float32 {
	switch {
	case v == nil:
		b.missing(name)
		return 0
	case !(*v > 0 && *v <= math.MaxFloat32):
		b.addProblem("%s is %v, want a positive number", name, *v)
		return 0
	}
	return float32(*v)
}
