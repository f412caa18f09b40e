package synth

import (
	"fmt"
	"math"

	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/layout"
	"sparrow/weight"
)

// smallBlock is the number of rows, and of columns, of the blocks of FP8 values with one scale in DeepSeek-V4.1.
const smallBlock = 32

// listV41 lists the tensors of a DeepSeek-V4.1 model, by the table of the v41 spec, 6, and the map of tokens to keys of
// its n-gram tables, which for releases is computed from the tokenizer.
func listV41(c *config.V41, fp8, fp4 bool) []tensor {
	l := &v4Lister{lister: lister{fp8: fp8}, c: &c.V4, fp4: fp8 && fp4, side: smallBlock}
	l.embedding("embed.weight", 1)
	l.embedding("head.weight", headGain/math.Sqrt(float64(c.Hidden)))
	l.norm("norm.weight", c.Hidden)
	for i := range c.Layers {
		p := fmt.Sprintf("layers.%d.", i)
		l.common(p)
		l.shared(c, p+"attn.", i)
	}
	if c.DSpark != nil {
		l.stagesV41(c)
	}
	for j, i := range c.Engram.Layers {
		l.table(c, fmt.Sprintf("layers.%d.engram.", i), j)
	}
	if len(c.Engram.Layers) > 0 {
		l.add(tensor{name: family.TokenMapTensor, shape: []int{c.Vocab}, dtype: weight.I32, store: tokenMap,
			limit: c.Engram.Compressed})
	}
	return l.list
}

// common lists the tensors that both layers and stages of a draft head have.
func (l *v4Lister) common(p string) {
	n := l.c.Hyper.Streams
	l.site(p+"hc_attn_", n*(2+n), 3)
	l.site(p+"hc_ffn_", n*(2+n), 3)
	l.norm(p+"attn_norm.weight", l.c.Hidden)
	l.norm(p+"ffn_norm.weight", l.c.Hidden)
	l.attention(p+"attn.", 0)
	l.moe(p+"ffn.", false)
}

// stagesV41 lists the tensors of the stages of a DSpark head, which have their own experts (v41 spec, 8).
func (l *v4Lister) stagesV41(c *config.V41) {
	d, layers := c.DSpark, l.c
	stage := c.V4
	stage.FFN.Experts, stage.FFN.TopK = d.Experts, d.Chosen
	l.c = &stage
	for k := range d.Stages {
		l.common(fmt.Sprintf("mtp.%d.", k))
	}
	l.c = layers
	last := fmt.Sprintf("mtp.%d.", d.Stages-1)
	l.matrix("mtp.0.main_proj.weight", c.Hidden, len(d.Taps)*c.Hidden, 1)
	l.norm("mtp.0.main_norm.weight", c.Hidden)
	l.norm(last+"norm.weight", c.Hidden)
	l.plain(last+"markov_head.embed.weight", c.Vocab, d.Rank)
	l.plain(last+"markov_head.head.weight", c.Vocab, d.Rank)
	l.plain(last+"confidence_head.proj.weight", 1, c.Hidden+d.Rank)
}

// shared lists the tensors with which a layer computes entries and selects, if it does.
func (l *v4Lister) shared(c *config.V41, p string, i int) {
	if c.EntrySource(i) == i {
		l.plain(p+"compressor.wkv.weight", c.Attention.Dim, c.Hidden)
		if c.Attention.Ratios[i] > 1 {
			l.plain(p+"compressor.wgate.weight", c.Attention.Dim, c.Hidden)
		}
		l.norm(p+"compressor.norm.weight", c.Attention.Dim)
		l.plain(p+"indexer.wk.weight", layout.IndexDim, c.Attention.Dim)
		l.norm(p+"indexer.k_norm.weight", layout.IndexDim)
	}
	if c.IndexSource(i) == i {
		l.matrix(p+"indexer.wq_b.weight", c.Indexer.Heads*c.Indexer.Dim, c.Attention.QLora, 1)
		l.plain(p+"indexer.weights_proj.weight", c.Indexer.Heads, c.Hidden)
	}
}

// table lists the tensors of an n-gram table and of the projections of its rows.
func (l *v4Lister) table(c *config.V41, p string, j int) {
	s, n := &c.Engram, c.Hyper.Streams
	t := tensor{name: p + "embed.weight", shape: []int{s.Rows[j], s.Dim}, dtype: weight.BF16, spread: 1}
	if l.fp8 {
		t.dtype, t.store, t.scale = weight.F8E4M3, rowFP8, p+"embed.scale"
	}
	l.add(t)
	l.matrix(p+"wkv.weight", (n+1)*c.Hidden, s.Columns()*s.Dim, 1)
	for _, name := range []string{"q_weight", "k_weight"} {
		l.add(tensor{name: p + name, shape: []int{n, c.Hidden}, dtype: weight.BF16, mean: 1, spread: normSpread})
	}
}
