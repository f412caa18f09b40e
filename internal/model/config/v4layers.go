package config

import "slices"

// Values of the elements of layer_types in the transformers spelling.
const (
	windowLayer = "sliding_attention"
	sparseLayer = "compressed_sparse_attention"
	heavyLayer  = "heavily_compressed_attention"
)

func (b *v4Builder) attention(c *V4) {
	r := &b.in
	c.Attention = V4Attention{
		Heads:  b.positive("num_attention_heads", r.Heads),
		Dim:    b.exactly("head_dim", r.HeadDim, 512),
		Rope:   b.exactly("qk_rope_head_dim", r.RopeDim, 64),
		QLora:  b.positive("q_lora_rank", r.QLora),
		OLora:  b.positive("o_lora_rank", r.OLora),
		Groups: b.positive("o_groups", r.OGroups),
		Window: b.positive("sliding_window", r.Window),
		Ratios: b.ratios(c.Layers),
	}
	if h, g := c.Attention.Heads, c.Attention.Groups; h > 0 && g > 0 && h%g != 0 {
		b.addProblem("o_groups is %d, which does not divide %d heads", g, h)
	}
}

// ratios reads the compression ratio of each layer. Values after those of the main layers are for draft stages.
func (b *v4Builder) ratios(layers int) []int {
	r := &b.in
	out := make([]int, layers)
	switch {
	case layers == 0 || b.mistyped["compress_ratios"] || b.mistyped["layer_types"]:
	case r.Ratios != nil && len(r.Ratios) < layers:
		b.addProblem("compress_ratios has %d entries, want at least one for each of %d layers", len(r.Ratios), layers)
	case r.Ratios != nil:
		for i, m := range r.Ratios[:layers] {
			if of := b.supportedRatios(); !slices.Contains(of, m) {
				b.addProblem("compress_ratios[%d] is %d, want %d, %d or %d", i, m, of[0], of[1], of[2])
				continue
			}
			out[i] = m
		}
	case r.LayerTypes != nil && len(r.LayerTypes) != layers:
		b.addProblem("layer_types has %d entries, want one for each of %d layers", len(r.LayerTypes), layers)
	case r.LayerTypes != nil:
		for i, t := range r.LayerTypes {
			out[i] = b.typeRatio(i, t)
		}
		for _, t := range []string{sparseLayer, heavyLayer} {
			if m, ok := r.Rates[t]; ok && m != b.typeRatio(0, t) {
				b.addProblem("compress_rates[%q] is %d, want %d", t, m, b.typeRatio(0, t))
			}
		}
	default:
		b.addProblem("compress_ratios and layer_types are missing; want one of them, which sets the compression of " +
			"each layer")
	}
	return out
}

// supportedRatios returns the compression ratios that layers of the family may have.
func (b *v4Builder) supportedRatios() []int {
	if b.family == DeepseekV41 {
		return []int{0, 1, 2}
	}
	return []int{0, 4, 128}
}

// typeRatio returns the ratio of a layer by the name of its type.
func (b *v4Builder) typeRatio(i int, t string) int {
	switch t {
	case windowLayer:
		return 0
	case sparseLayer:
		return 4
	case heavyLayer:
		return 128
	}
	b.addProblem("layer_types[%d] is %q, want %q, %q or %q", i, t, windowLayer, sparseLayer, heavyLayer)
	return 0
}

// ropeOf reads the rotations of both kinds of layers, from rope_parameters or from the theta fields and rope_scaling.
func (b *v4Builder) ropeOf(c *V4) {
	r := &b.in
	if b.mistyped["rope_parameters"] {
		return
	}
	if b.ropes != nil {
		c.Attention.Main = b.plainRope("rope_parameters.main", b.ropes.Main)
		c.Attention.Far = b.yarnRope("rope_parameters.compress", b.ropes.Far, nil)
		return
	}
	c.Attention.Main = Rope{Theta: b.theta("rope_theta", r.RopeTheta)}
	c.Attention.Far = b.yarnRope("rope_scaling", r.RopeScaling, r.FarTheta)
}

func (b *v4Builder) theta(name string, v *float64) float64 {
	switch {
	case v == nil:
		b.missing(name)
		return 0
	case !(*v > 1):
		b.addProblem("%s is %v, want a number above 1", name, *v)
		return 0
	}
	return *v
}

func (b *v4Builder) plainRope(name string, p *rawRope) Rope {
	if p == nil {
		b.missing(name)
		return Rope{}
	}
	if k := p.kind(); k != "default" && k != "" {
		b.addProblem("%s has type %q, want \"default\"", name, k)
	}
	return Rope{Theta: b.theta(name+".rope_theta", p.Theta)}
}

// yarnRope reads a rotation with YaRN. Its theta is in p, or in a separate field in the official spelling.
func (b *v4Builder) yarnRope(name string, p *rawRope, theta *float64) Rope {
	if p == nil {
		b.missing(name)
		return Rope{}
	}
	if k := p.kind(); k != "yarn" {
		b.addProblem("%s has type %q, want \"yarn\"", name, k)
	}
	field := "compress_rope_theta"
	if theta == nil && p.Theta != nil {
		theta, field = p.Theta, name+".rope_theta"
	}
	y := &Yarn{Factor: or(p.Factor, 0), Original: or(p.Original, 0), BetaFast: or(p.BetaFast, 0),
		BetaSlow: or(p.BetaSlow, 0)}
	if y.Factor <= 0 || y.Original <= 0 || y.BetaFast <= 0 || y.BetaSlow <= 0 {
		b.addProblem("%s needs positive factor, original_max_position_embeddings, beta_fast and beta_slow", name)
		y = nil
	}
	if a := or(p.Attention, 1); a != 1 {
		b.addProblem("%s.attention_factor is %v, want 1", name, a)
	}
	return Rope{Theta: b.theta(field, theta), Yarn: y}
}

func (b *v4Builder) ffn(c *V4) {
	r := &b.in
	f := V4FFN{
		Inner:   b.positive("moe_intermediate_size", r.MoEInner),
		Experts: b.count("n_routed_experts", r.Experts, mostExperts),
		Shared:  b.count("n_shared_experts", r.SharedExperts, mostExperts),
		TopK:    b.positive("num_experts_per_tok", r.TopExperts),
		Scale:   b.number("routed_scaling_factor", r.RoutedScale),
		Limit:   b.number("swiglu_limit", r.Limit),
		Hash:    b.hashLayers(c.Layers),
	}
	if f.Experts > 0 && f.TopK > f.Experts {
		b.addProblem("num_experts_per_tok is %d, want 1 to %d, the number of experts", f.TopK, f.Experts)
	}
	switch s := r.ScoringFunc; {
	case s == nil:
		b.missing("scoring_func")
	case *s != "sqrtsoftplus":
		b.addProblem("scoring_func is %q, want \"sqrtsoftplus\"", *s)
	}
	if m := or(r.TopKMethod, "noaux_tc"); m != "noaux_tc" {
		b.addProblem("topk_method is %q, want \"noaux_tc\"", m)
	}
	if !or(r.Normalize, true) {
		b.addProblem("norm_topk_prob is false, want true")
	}
	c.FFN = f
}

// hashLayers returns, for each layer, whether it looks up experts by token id.
func (b *v4Builder) hashLayers(layers int) []bool {
	r := &b.in
	out := make([]bool, layers)
	switch {
	case layers == 0 || b.mistyped["num_hash_layers"] || b.mistyped["mlp_layer_types"]:
	case r.HashLayers != nil && (*r.HashLayers < 0 || *r.HashLayers > layers):
		b.addProblem("num_hash_layers is %d, want 0 to %d, the number of layers", *r.HashLayers, layers)
	case r.HashLayers != nil:
		for i := range *r.HashLayers {
			out[i] = true
		}
	case r.MLPTypes != nil && len(r.MLPTypes) != layers:
		b.addProblem("mlp_layer_types has %d entries, want one for each of %d layers", len(r.MLPTypes), layers)
	case r.MLPTypes != nil:
		for i, t := range r.MLPTypes {
			if t != "hash_moe" && t != "moe" {
				b.addProblem("mlp_layer_types[%d] is %q, want \"hash_moe\" or \"moe\"", i, t)
			}
			out[i] = t == "hash_moe"
		}
	default:
		b.addProblem("num_hash_layers and mlp_layer_types are missing; want one of them, which sets the layers that " +
			"route by token")
	}
	return out
}
