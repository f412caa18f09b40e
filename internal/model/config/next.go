package config

import "reflect"

// Next describes a model of the family glm5_next, GLM-5.3-Flash (glm53flash spec, 1): layers of linear attention (KDA),
// and layers of latent attention without rotary embedding, whose indexer has one key for each pool of tokens.
// Indexer.TopK is a number of tokens, not of pools.
type Next struct {
	Config
	Attention Attention // sizes of latent attention; Rope is 0
	Linear    Linear
	Pool      int // tokens of one index key: 4
	Hyper     Hyper
	FFN       FFN
	Limit     float32 // gate and up of every feed-forward block are clamped to this limit
}

// Linear describes layers of linear attention with a gate for each channel (KDA).
type Linear struct {
	Heads  int
	Dim    int     // values of a key or value head: 128
	Conv   int     // tokens that the convolution before linear attention reads: 4
	Bound  float32 // lower bound of the logarithm of a channel's decay; negative
	Layers []bool  // for each layer, whether it has linear attention; otherwise it has latent attention
}

// Width returns the number of values of all heads.
func (l Linear) Width() int { return l.Heads * l.Dim }

// PoolTopK returns the number of pooled keys that a query selects.
func (c *Next) PoolTopK() int { return c.Indexer.TopK / max(c.Pool, 1) }

// rawNext holds the fields of a glm5_next config.json: as released, and as saved by transformers.
type rawNext struct {
	raw
	LayerTypes  []string   `json:"layer_types"`
	KPool       *int       `json:"index_kpool"`
	Compress    *bool      `json:"index_kpool_compress"`
	Tail        *bool      `json:"index_kpool_always_select_tail"`
	LinearAttn  *rawLinear `json:"linear_attn_config"`
	LinearHeads *int       `json:"linear_num_heads"`
	LinearDim   *int       `json:"linear_head_dim"`
	LinearConv  *int       `json:"linear_conv_kernel_dim"`
	LinearBound *float64   `json:"linear_lower_bound"`
	UseNope     *bool      `json:"mla_use_nope"`
	MHC         *bool      `json:"mhc"`
	HCMult      *int       `json:"hc_mult"`
	HCIters     *int       `json:"hc_sinkhorn_iters"`
	HCEps       *float64   `json:"hc_eps"`
	Limit       *float64   `json:"swiglu_limit"`
	RouterOut   *bool      `json:"output_router_logits"`
	ImageBegin  *int       `json:"image_start_token_id"`
	ImageEnd    *int       `json:"image_end_token_id"`
	VideoBegin  *int       `json:"video_start_token_id"`
	VideoEnd    *int       `json:"video_end_token_id"`
}

// rawLinear holds the fields of linear_attn_config in the released spelling. Layer numbers in its lists begin at 0.
type rawLinear struct {
	Heads    *int     `json:"num_heads"`
	Dim      *int     `json:"head_dim"`
	Conv     *int     `json:"short_conv_kernel_size"`
	Bound    *float64 `json:"gate_lower_bound"`
	SafeGate *bool    `json:"safe_gate"`
	KDA      []int    `json:"kda_layers"`
	Full     []int    `json:"full_attn_layers"`
}

// Values of the elements of layer_types.
const (
	linearLayer  = "linear_attention"
	pooledLayer  = "deepseek_sparse_attention"
	indexedLayer = "indexed_attention" // spelling of transformers
	fullLayer    = "full_attention"    // spelling of older files
)

func (b *builder) describeNext() *Next {
	in := &rawNext{}
	b.read("", b.fields, reflect.ValueOf(in).Elem())
	b.raw = &in.raw
	v := v4Builder{builder: b}
	r := in
	c := &Next{Config: Config{
		Family:       b.family,
		Vocab:        b.positive("vocab_size", r.Vocab),
		Hidden:       b.positive("hidden_size", r.Hidden),
		Layers:       b.count("num_hidden_layers", r.Layers, mostLayers),
		MaxPositions: b.count("max_position_embeddings", r.MaxPositions, mostPositions),
		RMSEps:       v.small("rms_norm_eps", r.RMSEps),
		NextN:        or(r.NextN, 0),
		FP8:          r.Quantization.fp8(),
		Pow2Rows:     r.Quantization.pow2Rows(),
		BOS:          r.BOS,
		EOS:          r.EOS,
		Pad:          r.Pad,
	}}
	b.tokens(&c.Config)
	c.Attention = Attention{
		Heads:  b.positive("num_attention_heads", r.Heads),
		QLora:  b.positive("q_lora_rank", r.QLora),
		Latent: v.exactly("kv_lora_rank", r.KVLora, 512),
		Nope:   b.positive("qk_nope_head_dim", r.Nope),
		V:      b.positive("v_head_dim", r.V),
	}
	c.Indexer = Indexer{
		Heads:      b.positive("index_n_heads", r.IndexHeads),
		Dim:        v.exactly("index_head_dim", r.IndexDim, 128),
		TopK:       b.count("index_topk", r.IndexTopK, mostSelected),
		ShareDraft: r.ShareDraft,
	}
	c.Pool = b.count("index_kpool", r.KPool, 1<<10)
	c.Hyper = Hyper{Streams: b.count("hc_mult", r.HCMult, mostStreams),
		Rounds: b.count("hc_sinkhorn_iters", r.HCIters, mostRounds), Eps: v.small("hc_eps", r.HCEps)}
	c.Limit = v.number("swiglu_limit", r.Limit)
	b.linear(c, in)
	d := &DSA{Config: c.Config}
	b.ffn(d)
	c.FFN = d.FFN
	b.fixedNext(c, in)
	return c
}

// fixedNext checks fields that must have the values that the code assumes.
func (b *builder) fixedNext(c *Next, r *rawNext) {
	refuse := func(bad bool, format string, args ...any) {
		if bad {
			b.addProblem(format, args...)
		}
	}
	refuse(or(r.RopeDim, 0) != 0, "qk_rope_head_dim is %d: the latent rows of %s are not rotated; want 0",
		or(r.RopeDim, 0), c.Family)
	refuse(!or(r.UseNope, true), "mla_use_nope is false, want true")
	refuse(c.Pool != 0 && c.Pool != 4, "index_kpool is %d, want 4", c.Pool)
	refuse(c.Pool > 0 && c.Indexer.TopK%c.Pool != 0, "index_topk is %d, want a multiple of index_kpool %d",
		c.Indexer.TopK, c.Pool)
	refuse(!or(r.Compress, true), "index_kpool_compress is false, want true")
	refuse(!or(r.Tail, true), "index_kpool_always_select_tail is false, want true")
	refuse(!or(r.MHC, true), "mhc is false; want true: only residual streams of hyper-connections are supported")
	refuse(or(r.Act, "silu") != "silu", "hidden_act is %q, want \"silu\"", or(r.Act, "silu"))
	refuse(r.AttentionBias || r.MLPBias, "attention_bias and mlp_bias must be false: no released model of this family "+
		"has them")
	refuse(r.Tied, "tie_word_embeddings must be false: released models of this family have a separate head")
	refuse(c.NextN < 0 || c.NextN > 1, "num_nextn_predict_layers is %d, want 0 or 1", c.NextN)
	refuse(r.KVHeads != nil && r.Heads != nil && *r.KVHeads != *r.Heads,
		"num_key_value_heads is %d, want num_attention_heads (%d)", or(r.KVHeads, 0), or(r.Heads, 0))
	refuse(c.FFN.Shared < 1, "n_shared_experts is %d, want at least 1", c.FFN.Shared)
	for i, kind := range r.IndexerTypes {
		// Between any two layers with an indexer there is a layer of linear attention, so selections cannot be shared.
		refuse(kind != "full", "indexer_types[%d] is %q, want \"full\"", i, kind)
	}
}

// linear reads the layers of linear attention and their sizes, in either spelling.
func (b *builder) linear(c *Next, r *rawNext) {
	heads, dim, conv, bound := r.LinearHeads, r.LinearDim, r.LinearConv, r.LinearBound
	if l := r.LinearAttn; l != nil {
		heads, dim, conv = first(l.Heads, heads), first(l.Dim, dim), first(l.Conv, conv)
		bound = first(l.Bound, bound)
		if !or(l.SafeGate, true) {
			b.addProblem("linear_attn_config.safe_gate is false, want true: a decay bounded by gate_lower_bound")
		}
	}
	c.Linear = Linear{Heads: b.positive("linear_attn_config.num_heads", heads),
		Dim:   b.positive("linear_attn_config.head_dim", dim),
		Conv:  b.positive("linear_attn_config.short_conv_kernel_size", conv),
		Bound: float32(or(bound, -5)), Layers: make([]bool, c.Layers)}
	if d := c.Linear.Dim; d != 0 && d != 128 {
		b.addProblem("linear_attn_config.head_dim is %d, want 128", d)
	}
	if n := c.Linear.Conv; n != 0 && n != 4 {
		b.addProblem("linear_attn_config.short_conv_kernel_size is %d, want 4", n)
	}
	if !(c.Linear.Bound < 0 && c.Linear.Bound >= -16) {
		b.addProblem("linear_attn_config.gate_lower_bound is %v, want a number from -16 to below 0", c.Linear.Bound)
	}
	switch {
	case r.LayerTypes == nil:
		for i := range c.Linear.Layers {
			c.Linear.Layers[i] = i%4 != 3
		}
	case len(r.LayerTypes) != c.Layers:
		b.addProblem("layer_types has %d entries, want one for each of %d layers", len(r.LayerTypes), c.Layers)
		return
	}
	for i, kind := range r.LayerTypes {
		switch kind {
		case linearLayer, pooledLayer, indexedLayer, fullLayer:
			c.Linear.Layers[i] = kind == linearLayer
		default:
			b.addProblem("layer_types[%d] is %q, want %q, %q, %q or %q", i, kind, linearLayer, pooledLayer,
				indexedLayer, fullLayer)
		}
	}
	if l := r.LinearAttn; l != nil {
		b.agrees(c, "kda_layers", l.KDA, true)
		b.agrees(c, "full_attn_layers", l.Full, false)
	}
}

// agrees adds a problem if a list of layer numbers, from 0, contradicts layer_types.
func (b *builder) agrees(c *Next, name string, list []int, linear bool) {
	if list == nil {
		return
	}
	listed := make([]bool, c.Layers)
	for _, i := range list {
		if i < 0 || i >= c.Layers {
			b.addProblem("linear_attn_config.%s has layer %d of %d, counted from 0", name, i, c.Layers)
			return
		}
		listed[i] = true
	}
	for i, l := range c.Linear.Layers {
		if listed[i] != (l == linear) {
			b.addProblem("linear_attn_config.%s and layer_types disagree about layer %d; layers are counted from 0",
				name, i)
			return
		}
	}
}

// first returns the first of two pointers that is not nil.
func first[T any](a, b *T) *T {
	if a != nil {
		return a
	}
	return b
}

// ParseNext reads the text of a GLM-5.3-Flash config.json; file is its name in messages.
func ParseNext(file string, data []byte) (*Next, error) { return as[*Next](file, data) }
