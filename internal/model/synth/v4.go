package synth

import (
	"fmt"
	"math"
	"strings"

	"sparrow/internal/model/config"
	"sparrow/layout"
	"sparrow/weight"
)

// Standard deviations of the tensors that only DeepSeek-V4 has: large enough that omitting a term changes results,
// small enough that no stream, expert or token dominates.
const (
	hyperBase  = 0.5
	hyperScale = 0.5 // mean value
	sinkSpread = 1.0
	apeSpread  = 0.5
)

// v4Lister collects the tensors of a DeepSeek-V4 model under their official names, as in the table of the v4 spec, 5.
type v4Lister struct {
	lister
	c    *config.V4
	fp4  bool // whether experts of an FP8 checkpoint are FP4
	side int  // rows and columns of the blocks with one scale; 0 means 128
}

func listV4(c *config.V4, fp8, fp4 bool) []tensor {
	l := &v4Lister{lister: lister{fp8: fp8, list: spaceFor(&c.Config, c.FFN.Experts)}, c: c, fp4: fp8 && fp4}
	l.embedding("embed.weight", 1)
	l.embedding("head.weight", headGain/math.Sqrt(float64(c.Hidden)))
	l.norm("norm.weight", c.Hidden)
	l.collapse("")
	for i := range c.Layers {
		l.layer(fmt.Sprintf("layers.%d.", i), c.Attention.Ratios[i], c.FFN.Hash[i])
	}
	l.nextN = true
	switch {
	case c.DSpark != nil:
		l.stages(c.DSpark)
	case c.NextN > 0:
		l.draft("mtp.0.")
	}
	return l.list
}

func (l *v4Lister) embedding(name string, spread float64) {
	l.add(tensor{name: name, shape: []int{l.c.Vocab, l.c.Hidden}, dtype: weight.BF16, spread: spread})
}

// floats adds a tensor that is always float32.
func (l *v4Lister) floats(name string, mean, spread float64, shape ...int) {
	l.add(tensor{name: name, shape: shape, dtype: weight.F32, mean: mean, spread: spread})
}

// matrix adds a matrix [out, in] that FP8 checkpoints store in blocks whose scales are exponents.
func (l *v4Lister) matrix(name string, out, in int, gain float64) {
	l.lister.matrix(name, out, in, gain)
	if l.fp8 {
		t := &l.list[len(l.list)-1]
		t.store, t.scale, t.side = blockFP8E8, scaleName(name), l.side
	}
}

// expert adds a matrix of a routed expert, which is FP4 in most checkpoints.
func (l *v4Lister) expert(name string, out, in int, gain float64) {
	l.matrix(name, out, in, gain)
	if l.fp4 {
		t := &l.list[len(l.list)-1]
		t.dtype, t.store = weight.I8, groupFP4
	}
}

func scaleName(name string) string { return strings.TrimSuffix(name, "weight") + "scale" }

func (l *v4Lister) residual() float64 { return 1 / math.Sqrt(2*float64(l.c.Layers)) }

// site lists the tensors of the hyper-connections of a sublayer: n coefficients for its input, n for its output and n x
// n for mixing.
func (l *v4Lister) site(prefix string, mix, scales int) {
	in := l.c.Hyper.Streams * l.c.Hidden
	l.floats(prefix+"fn", 0, 1/math.Sqrt(float64(in)), mix, in)
	l.floats(prefix+"base", 0, hyperBase, mix)
	l.floats(prefix+"scale", hyperScale, normSpread, scales)
}

// collapse lists the tensors with which the streams are combined after the last layer.
func (l *v4Lister) collapse(prefix string) { l.site(prefix+"hc_head_", l.c.Hyper.Streams, 1) }

func (l *v4Lister) layer(p string, ratio int, hash bool) {
	n := l.c.Hyper.Streams
	l.site(p+"hc_attn_", n*(2+n), 3)
	l.site(p+"hc_ffn_", n*(2+n), 3)
	l.norm(p+"attn_norm.weight", l.c.Hidden)
	l.norm(p+"ffn_norm.weight", l.c.Hidden)
	l.attention(p+"attn.", ratio)
	l.moe(p+"ffn.", hash)
}

func (l *v4Lister) attention(p string, ratio int) {
	a, h, x := l.c.Attention, l.c.Hidden, l.c.Indexer
	l.matrix(p+"wq_a.weight", a.QLora, h, 1)
	l.norm(p+"q_norm.weight", a.QLora)
	l.matrix(p+"wq_b.weight", a.Heads*a.Dim, a.QLora, 1)
	l.matrix(p+"wkv.weight", a.Dim, h, 1)
	l.norm(p+"kv_norm.weight", a.Dim)
	l.matrix(p+"wo_a.weight", a.Groups*a.OLora, a.Heads/a.Groups*a.Dim, 1)
	l.matrix(p+"wo_b.weight", h, a.Groups*a.OLora, l.residual())
	l.floats(p+"attn_sink", 0, sinkSpread, a.Heads)
	if ratio == 0 {
		return
	}
	l.compressor(p+"compressor.", ratio, a.Dim)
	if ratio != 4 {
		return
	}
	l.matrix(p+"indexer.wq_b.weight", x.Heads*x.Dim, a.QLora, 1)
	l.plain(p+"indexer.weights_proj.weight", x.Heads, h)
	l.compressor(p+"indexer.compressor.", ratio, layout.IndexDim)
}

// compressor lists the tensors with which entries of dim values are computed. Groups of ratio 4 overlap, so every token
// has two projections.
func (l *v4Lister) compressor(p string, ratio, dim int) {
	wide := dim
	if ratio == 4 {
		wide *= 2
	}
	l.plain(p+"wkv.weight", wide, l.c.Hidden)
	l.plain(p+"wgate.weight", wide, l.c.Hidden)
	l.floats(p+"ape", 0, apeSpread, ratio, wide)
	l.norm(p+"norm.weight", dim)
}

func (l *v4Lister) moe(p string, hash bool) {
	f, h := l.c.FFN, l.c.Hidden
	l.plain(p+"gate.weight", f.Experts, h)
	if hash {
		l.add(tensor{name: p + "gate.tid2eid", shape: []int{l.c.Vocab, f.TopK}, dtype: weight.I64, store: expertTable,
			limit: f.Experts})
	} else {
		l.floats(p+"gate.bias", 0, biasSpread, f.Experts)
	}
	block := func(p string, inner int, add func(string, int, int, float64)) {
		add(p+"w1.weight", inner, h, 1)
		add(p+"w3.weight", inner, h, 1)
		add(p+"w2.weight", h, inner, l.residual())
	}
	for e := range f.Experts {
		block(fmt.Sprintf("%sexperts.%d.", p, e), f.Inner, l.expert)
	}
	if f.Shared > 0 {
		block(p+"shared_experts.", f.Inner*f.Shared, l.matrix)
	}
}

// draft lists the tensors of the drafting block: a layer without compressed entries, and the projections of hidden
// streams and of the next token's embedding (v4 spec, 2.7).
func (l *v4Lister) draft(p string) {
	h := l.c.Hidden
	l.layer(p, 0, false)
	l.matrix(p+"e_proj.weight", h, h, 1)
	l.matrix(p+"h_proj.weight", h, h, 1)
	l.norm(p+"enorm.weight", h)
	l.norm(p+"hnorm.weight", h)
	l.norm(p+"norm.weight", h)
	l.collapse(p)
}

// stages lists the tensors of the stages of a DSpark head (dspark spec, 2): layers without compressed entries, the
// projection of the target's hidden states before the first stage, and the heads after the last stage.
func (l *v4Lister) stages(d *config.DSpark) {
	h, last := l.c.Hidden, fmt.Sprintf("mtp.%d.", d.Stages-1)
	for k := range d.Stages {
		l.layer(fmt.Sprintf("mtp.%d.", k), 0, false)
	}
	l.matrix("mtp.0.main_proj.weight", h, len(d.Taps)*h, 1)
	l.norm("mtp.0.main_norm.weight", h)
	l.norm(last+"norm.weight", h)
	l.collapse(last)
	l.plain(last+"markov_head.markov_w1.weight", l.c.Vocab, d.Rank)
	l.plain(last+"markov_head.markov_w2.weight", l.c.Vocab, d.Rank)
	l.plain(last+"confidence_head.proj.weight", 1, h+d.Rank)
}
