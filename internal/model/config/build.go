package config

import (
	"encoding/json"
	"fmt"
	"math"
	"strings"
)

// builder converts the fields of config.json to a description and collects the problems.
type builder struct {
	fields   map[string]json.RawMessage // fields of config.json
	family   Family
	raw      *raw
	problems []string
	losses   []string
	mistyped map[string]bool // fields already reported; they are not reported as missing too
}

func (b *builder) addProblem(format string, args ...any) {
	b.problems = append(b.problems, fmt.Sprintf(format, args...))
}

// missing adds a problem for an absent field.
func (b *builder) missing(name string) {
	if !b.mistyped[name] {
		b.addProblem("%s is missing", name)
	}
}

// Maximum values, far above those of any released model. They limit the memory that is allocated for a damaged file.
const (
	mostSize      = 1 << 30
	mostLayers    = 1 << 12
	mostExperts   = 1 << 12
	mostPositions = 1 << 26
	mostSelected  = 1 << 16
	mostTheta     = 1e12
)

// tokens checks that ids of tokens are in the vocabulary.
func (b *builder) tokens(c *Config) {
	check := func(name string, id int) {
		if c.Vocab > 0 && (id < 0 || id >= c.Vocab) {
			b.addProblem("%s is %d, want 0 to %d (vocab_size - 1)", name, id, c.Vocab-1)
		}
	}
	if c.BOS != nil {
		check("bos_token_id", *c.BOS)
	}
	if c.Pad != nil {
		check("pad_token_id", *c.Pad)
	}
	for _, id := range c.EOS {
		check("eos_token_id", id)
	}
}

// positive reads a required size between 1 and mostSize.
func (b *builder) positive(name string, v *int) int { return b.count(name, v, mostSize) }

// count reads a required number between 1 and most.
func (b *builder) count(name string, v *int, most int) int {
	switch {
	case v == nil:
		b.missing(name)
		return 0
	case *v <= 0 || *v > most:
		b.addProblem("%s is %d, want 1 to %d", name, *v, most)
		return 0
	}
	return *v
}

func or[T any](v *T, absent T) T {
	if v == nil {
		return absent
	}
	return *v
}

func (b *builder) build() *DSA {
	r := b.raw
	c := &DSA{Config: Config{
		Family:       b.family,
		Vocab:        b.positive("vocab_size", r.Vocab),
		Hidden:       b.positive("hidden_size", r.Hidden),
		Layers:       b.count("num_hidden_layers", r.Layers, mostLayers),
		MaxPositions: b.count("max_position_embeddings", r.MaxPositions, mostPositions),
		// its class in transformers has tied embeddings by default, but releases have a separate head
		TiedHead: r.Tied && b.family != KimiK25,
		NextN:    or(r.NextN, 0),
		FP8:      r.Quantization.fp8(),
		Pow2Rows: r.Quantization.pow2Rows(),
		BOS:      r.BOS,
		EOS:      r.EOS,
		Pad:      r.Pad,
	}}
	b.tokens(&c.Config)
	b.eps(c)
	b.attention(c)
	if c.Family.Dense() {
		b.noIndexer(c.Family)
	} else {
		b.indexer(c)
	}
	b.rope(c)
	b.ffn(c)
	if act := or(r.Act, "silu"); act != "silu" {
		b.addProblem("hidden_act is %q, want \"silu\"", act)
	}
	if r.AttentionBias || r.MLPBias {
		b.addProblem("attention_bias and mlp_bias must be false: no released model of this family has them")
	}
	if c.NextN < 0 || c.NextN > 1 {
		b.addProblem("num_nextn_predict_layers is %d, want 0 or 1", c.NextN)
	}
	return c
}

func (b *builder) eps(c *DSA) {
	switch e := b.raw.RMSEps; {
	case e == nil:
		b.missing("rms_norm_eps")
	case *e <= 0 || *e >= 1:
		b.addProblem("rms_norm_eps is %v, want a small positive number", *e)
	default:
		c.RMSEps = float32(*e)
	}
	// The latent norms of all families use the epsilon 1e-6, not rms_norm_eps (v32 spec, 2.1; for GLM it follows from
	// the reference outputs).
	c.LatentEps = 1e-6
}

func (b *builder) attention(c *DSA) {
	r := b.raw
	c.Attention = Attention{
		Heads:  b.positive("num_attention_heads", r.Heads),
		QLora:  b.queryRank(c.Family),
		Latent: b.positive("kv_lora_rank", r.KVLora),
		Nope:   b.positive("qk_nope_head_dim", r.Nope),
		Rope:   b.positive("qk_rope_head_dim", r.RopeDim),
		V:      b.positive("v_head_dim", r.V),
	}
	if l := c.Attention.Latent; l != 0 && l != 512 {
		b.addProblem("kv_lora_rank is %d, want 512, as in the cache layouts", l)
	}
	if d := c.Attention.Rope; d != 0 && d != 64 {
		b.addProblem("qk_rope_head_dim is %d, want 64, as in the cache layouts", d)
	}
	if !or(r.Interleave, true) {
		b.addProblem("rope_interleave is false, want true")
	}
	if r.KVHeads != nil && r.Heads != nil && *r.KVHeads != *r.Heads {
		b.addProblem("num_key_value_heads is %d, want num_attention_heads (%d)", *r.KVHeads, *r.Heads)
	}
}

func (b *builder) indexer(c *DSA) {
	r := b.raw
	c.Indexer = Indexer{
		Heads:       b.positive("index_n_heads", r.IndexHeads),
		Dim:         b.positive("index_head_dim", r.IndexDim),
		TopK:        b.count("index_topk", r.IndexTopK, mostSelected),
		Interleaved: or(r.IdxInterleave, c.Family == GLMMoeDSA),
		ShareDraft:  r.ShareDraft,
	}
	if d := c.Indexer.Dim; d != 0 && d != 128 {
		b.addProblem("index_head_dim is %d, want 128, as in the index cache", d)
	}
	if c.Layers > 0 {
		c.Indexer.Shared = b.shared(c.Layers)
		if len(c.Indexer.Shared) > 0 && c.Indexer.Shared[0] {
			b.addProblem("layer 0 shares its selection with no layer before it; it must compute its own")
		}
	}
}

// shared returns, for each layer, whether it reuses a selection. The first of these fields that is present decides: the
// list, the pattern, frequency and offset (v32 spec, 1.4). Without them, no layer does.
func (b *builder) shared(layers int) []bool {
	r := b.raw
	out := make([]bool, layers)
	switch {
	case r.IndexerTypes != nil:
		b.marks(out, "indexer_types", r.IndexerTypes, "shared", "full")
	case r.IndexPattern != nil:
		if len(*r.IndexPattern) != layers || strings.Trim(*r.IndexPattern, "FS") != "" {
			b.addProblem("index_topk_pattern is %q, want %d letters F (full) or S (shared)", *r.IndexPattern, layers)
			return out
		}
		for i := range out {
			out[i] = (*r.IndexPattern)[i] == 'S'
		}
	case r.IndexFreq != nil:
		freq, offset := *r.IndexFreq, or(r.IndexOffset, 2)
		if freq <= 0 || offset < 0 {
			b.addProblem("index_topk_freq is %d with index_skip_topk_offset %d, want a positive "+
				"frequency", freq, offset)
			return out
		}
		for i := range out {
			out[i] = max(i-offset+1, 0)%freq != 0
		}
	}
	return out
}

func (b *builder) rope(c *DSA) {
	r := b.raw
	p := r.RopeParams
	if p == nil {
		p = r.RopeScaling
	}
	theta := r.RopeTheta
	if p != nil && p.Theta != nil {
		theta = p.Theta
	}
	switch {
	case theta == nil && !b.mistyped["rope_theta"] && !b.mistyped["rope_parameters.rope_theta"]:
		b.addProblem("rope_theta is missing; want it at the top level or in rope_parameters")
	case theta != nil && !(*theta > 1 && *theta <= mostTheta):
		b.addProblem("rope_theta is %v, want a number above 1, up to %v", *theta, mostTheta)
	}
	c.Rope.Theta = or(theta, 0)
	if p == nil {
		return
	}
	switch p.kind() {
	case "", "default":
	case "yarn":
		y := &Yarn{
			Factor:       or(p.Factor, 0),
			Original:     or(p.Original, 0),
			BetaFast:     or(p.BetaFast, 32),
			BetaSlow:     or(p.BetaSlow, 1),
			MScale:       or(p.MScale, 0),
			MScaleAllDim: or(p.MScaleAllDim, 0),
		}
		if y.Factor <= 0 || y.Original <= 0 || y.BetaFast <= 0 || y.BetaSlow <= 0 {
			b.addProblem("yarn needs positive factor, original_max_position_embeddings, beta_fast and beta_slow")
			return
		}
		c.Rope.Yarn = y
	default:
		b.addProblem("rope type is %q, want \"default\" or \"yarn\"", p.kind())
	}
}

func (b *builder) ffn(c *DSA) {
	r := b.raw
	f := FFN{
		DenseInner: b.positive("intermediate_size", r.Inner),
		Inner:      b.positive("moe_intermediate_size", r.MoEInner),
		Experts:    b.count("n_routed_experts", r.Experts, mostExperts),
		Shared:     or(r.SharedExperts, 0),
		TopK:       b.positive("num_experts_per_tok", r.TopExperts),
		Groups:     or(r.Groups, 1),
		KeepGroups: or(r.KeepGroups, 1),
		Normalize:  or(r.Normalize, true),
		Scale:      float32(or(r.RoutedScale, 1)),
	}
	if s := or(r.ScoringFunc, "sigmoid"); s != "sigmoid" {
		b.addProblem("scoring_func is %q, want \"sigmoid\"", s)
	}
	if m := or(r.TopKMethod, "noaux_tc"); m != "noaux_tc" {
		b.addProblem("topk_method is %q, want \"noaux_tc\"", m)
	}
	if q := or(r.MoEFreq, 1); q != 1 {
		b.addProblem("moe_layer_freq is %d, want 1", q)
	}
	if f.Shared < 0 || f.Shared > mostExperts {
		b.addProblem("n_shared_experts is %d, want 0 to %d", f.Shared, mostExperts)
	}
	if s := or(r.RoutedScale, 1); !(s > 0 && s <= math.MaxFloat32) {
		b.addProblem("routed_scaling_factor is %v, want a positive number", s)
	}
	if f.Experts > 0 && f.TopK > 0 {
		switch {
		case f.Groups <= 0 || f.KeepGroups <= 0 || f.KeepGroups > f.Groups || f.Experts%f.Groups != 0:
			b.addProblem("n_group is %d and topk_group %d; want n_group to divide the %d experts, and topk_group "+
				"from 1 to n_group", f.Groups, f.KeepGroups, f.Experts)
		case f.TopK > f.Experts/f.Groups*f.KeepGroups:
			b.addProblem("num_experts_per_tok is %d, only %d experts remain after the group choice", f.TopK,
				f.Experts/f.Groups*f.KeepGroups)
		}
	}
	f.Dense = b.denseLayers(c.Layers)
	c.FFN = f
}

// marks reads a list with one word for each layer and sets out[i] to true for the word yes, to false for no.
func (b *builder) marks(out []bool, name string, words []string, yes, no string) {
	if len(words) != len(out) {
		b.addProblem("%s has %d entries, want one for each of %d layers", name, len(words), len(out))
		return
	}
	for i, w := range words {
		if w != yes && w != no {
			b.addProblem("%s[%d] is %q, want %q or %q", name, i, w, no, yes)
		}
		out[i] = w == yes
	}
}

func (b *builder) denseLayers(layers int) []bool {
	r := b.raw
	out := make([]bool, layers)
	if layers == 0 {
		return out // a wrong number of layers is reported separately
	}
	if r.MLPTypes != nil {
		b.marks(out, "mlp_layer_types", r.MLPTypes, "dense", "sparse")
		return out
	}
	first := or(r.FirstDense, 0)
	if first < 0 || first > layers {
		b.addProblem("first_k_dense_replace is %d, want a number of layers from zero to %d", first, layers)
		return out
	}
	for i := range first {
		out[i] = true
	}
	return out
}
