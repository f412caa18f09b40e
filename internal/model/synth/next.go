package synth

import (
	"fmt"
	"math"

	"sparrow/internal/model/config"
	"sparrow/layout"
	"sparrow/weight"
)

// Standard deviations of tensors that only GLM-5.3-Flash has.
const (
	speedSpread = 0.5 // standard deviation of the logarithm of the heads' decay rates
	decayBias   = 1.5
	decayMean   = -3 // mean: the state of most channels decays over tens of tokens
	convSpread  = 0.5
	nextPrefix  = "model.language_model."
)

// nextLister collects the tensors of a GLM-5.3-Flash model, as in the table of the glm53flash spec, 8.
type nextLister struct {
	lister
	c *config.Next
}

func listNext(c *config.Next, fp8 bool) []tensor {
	l := &nextLister{lister: lister{fp8: fp8, list: spaceFor(&c.Config, c.FFN.Experts)}, c: c}
	l.add(tensor{name: nextPrefix + "embed_tokens.weight", shape: []int{c.Vocab, c.Hidden}, dtype: weight.BF16,
		spread: 1})
	l.add(tensor{name: "lm_head.weight", shape: []int{c.Vocab, c.Hidden}, dtype: weight.BF16,
		spread: headGain / math.Sqrt(float64(c.Hidden))})
	l.norm(nextPrefix+"norm.weight", c.Hidden)
	for i := range c.Layers {
		l.layer(i)
	}
	if c.NextN > 0 {
		l.nextN = true
		l.draft()
	}
	return l.list
}

func (l *nextLister) residual() float64 { return 1 / math.Sqrt(2*float64(l.c.Layers)) }

// floats adds a tensor that is always float32.
func (l *nextLister) floats(name string, mean, spread float64, shape ...int) {
	l.add(tensor{name: name, shape: shape, dtype: weight.F32, mean: mean, spread: spread})
}

// plainGain is like plain, with values multiplied by gain.
func (l *nextLister) plainGain(name string, out, in int, gain float64) {
	l.add(tensor{name: name, shape: []int{out, in}, dtype: weight.BF16, spread: gain / math.Sqrt(float64(in))})
}

func (l *nextLister) layer(i int) {
	c, p := l.c, fmt.Sprintf("%slayers.%d.", nextPrefix, i)
	l.norm(p+"input_layernorm.weight", c.Hidden)
	l.norm(p+"post_attention_layernorm.weight", c.Hidden)
	if i < c.Layers { // the drafting layer has one residual stream
		l.site(p + "hc_attn_")
		l.site(p + "hc_ffn_")
	}
	if i < c.Layers && c.Linear.Layers[i] {
		l.linear(p + "self_attn.")
	} else {
		l.attention(p + "self_attn.")
	}
	if i < c.Layers && c.FFN.Dense[i] {
		l.mlp(p+"mlp.", c.FFN.DenseInner)
		return
	}
	l.plain(p+"mlp.gate.weight", c.FFN.Experts, c.Hidden)
	l.floats(p+"mlp.gate.e_score_correction_bias", 0, biasSpread, c.FFN.Experts)
	for e := range c.FFN.Experts {
		l.mlp(fmt.Sprintf("%smlp.experts.%d.", p, e), c.FFN.Inner)
	}
	l.mlp(p+"mlp.shared_experts.", c.FFN.Inner*c.FFN.Shared)
}

// site lists the tensors of the hyper-connections of a sublayer.
func (l *nextLister) site(p string) {
	n := l.c.Hyper.Streams
	l.plain(p+"fn", n*(2+n), n*l.c.Hidden)
	l.floats(p+"base", 0, hyperBase, n*(2+n))
	l.floats(p+"scale", hyperScale, normSpread, 3)
}

func (l *nextLister) linear(p string) {
	h, n, d := l.c.Hidden, l.c.Linear.Width(), l.c.Linear.Dim
	for _, name := range []string{"q", "k", "v"} {
		l.plain(p+name+"_proj.weight", n, h)
		l.add(tensor{name: p + name + "_conv1d.weight", shape: []int{n, 1, l.c.Linear.Conv}, dtype: weight.BF16,
			spread: convSpread})
	}
	for _, name := range []string{"f", "g"} {
		l.plain(p+name+"_a_proj.weight", d, h)
		l.plain(p+name+"_b_proj.weight", n, d)
	}
	l.plain(p+"b_proj.weight", l.c.Linear.Heads, h)
	l.plainGain(p+"o_proj.weight", h, n, l.residual())
	l.floats(p+"A_log", 0, speedSpread, l.c.Linear.Heads)
	l.floats(p+"dt_bias", decayMean, decayBias, n)
	l.norm(p+"o_norm.weight", d)
}

func (l *nextLister) attention(p string) {
	a, x, h := l.c.Attention, l.c.Indexer, l.c.Hidden
	l.matrix(p+"q_a_proj.weight", a.QLora, h, 1)
	l.norm(p+"q_a_layernorm.weight", a.QLora)
	l.matrix(p+"q_b_proj.weight", a.Heads*a.QK(), a.QLora, 1)
	l.matrix(p+"kv_a_proj_with_mqa.weight", a.Latent, h, 1)
	l.norm(p+"kv_a_layernorm.weight", a.Latent)
	l.plain(p+"kv_b_proj.weight", a.Heads*(a.Nope+a.V), a.Latent)
	l.matrix(p+"o_proj.weight", h, a.Heads*a.V, l.residual())
	l.plain(p+"indexer.wq_b.weight", x.Heads*layout.IndexDim, a.QLora)
	l.plain(p+"indexer.wk.weight", layout.IndexDim, h)
	l.plain(p+"indexer.weights_proj.weight", x.Heads, h)
	l.norm(p+"indexer.k_norm.weight", layout.IndexDim)
	l.add(tensor{name: p + "indexer.k_norm.bias", shape: []int{layout.IndexDim}, dtype: weight.BF16,
		spread: biasSpread})
	l.plain(p+"indexer.index_kpool_compress_gate", layout.IndexDim, h)
	l.add(tensor{name: p + "indexer.index_kpool_compress_ape", shape: []int{l.c.Pool, layout.IndexDim},
		dtype: weight.BF16, spread: apeSpread})
}

func (l *nextLister) mlp(p string, inner int) {
	l.matrix(p+"gate_proj.weight", inner, l.c.Hidden, 1)
	l.matrix(p+"up_proj.weight", inner, l.c.Hidden, 1)
	l.matrix(p+"down_proj.weight", l.c.Hidden, inner, l.residual())
}

// draft lists the tensors of the drafting layer (glm53flash spec, 7): without copies of embedding and head.
func (l *nextLister) draft() {
	h, p := l.c.Hidden, fmt.Sprintf("%slayers.%d.", nextPrefix, l.c.Layers)
	l.layer(l.c.Layers)
	l.norm(p+"enorm.weight", h)
	l.norm(p+"hnorm.weight", h)
	l.plain(p+"eh_proj.weight", h, 2*h)
	l.norm(p+"shared_head.norm.weight", h)
}
