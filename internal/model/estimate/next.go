package estimate

import (
	"fmt"

	"sparrow/internal/attn/hybrid"
	"sparrow/internal/cost"
	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/next"
	"sparrow/layout"
)

// nextStep estimates a step of GLM-5.3-Flash.
type nextStep struct {
	*parts
	c *config.Next
}

// Measured linear attention on an H200. Rows of a sequence are computed one after another, and a single sequence of at
// least 64 heads uses the whole GPU.
const (
	deltaRow      = 0.35 // microseconds of a prompt row with 64 heads
	deltaHeads    = 64
	deltaLaunches = 3 // launches of a layer: convolution, delta rule, norm
)

func (s *nextStep) run() {
	s.layers(s.c.Layers, s.layer)
	s.ends(float64(s.c.Vocab), float64(s.c.Hidden))
}

func (s *nextStep) layer(l int) {
	c, x := s.c, s.x
	h, streams := float64(c.Hidden), float64(c.Hyper.Streams)
	sites := 2 * (s.product(s.rows, streams*(2+streams), streams*h, 2) + 2*x.Launch + 3*s.rows*streams*h*2/x.Weights)
	s.add("streams", sites, fmt.Sprintf("for each sublayer: a bf16 product, two launches and three times the bytes "+
		"of all streams / %.1f TB/s", x.Weights/1e6))
	if c.Linear.Layers[l] {
		s.linear(h)
	} else {
		s.selecting(h)
	}
	if c.FFN.Dense[l] {
		inner := float64(c.FFN.DenseInner)
		s.add("products", s.product(s.rows, 2*inner, h, 1)+s.product(s.rows, h, inner, 1), s.productFormula())
	} else {
		s.mixture(l)
	}
	s.rest("norms, quantisation, rows and keys stored")
}

// linear adds the time of a layer of linear attention: bf16 products, and reads and writes of the sequences' states.
func (s *nextStep) linear(h float64) {
	x, w, d := s.x, float64(s.c.Linear.Width()), float64(s.c.Linear.Dim)
	s.add("products", s.product(s.own, 3*w+2*d+float64(s.c.Linear.Heads), h, 2)+2*s.product(s.own, w, d, 2)+
		s.product(s.own, h, w, 2), s.productFormula())
	s.add("linear attention", deltaLaunches*x.Launch+s.decodes*2*float64(hybrid.LinearBytes(int(w)))/x.Weights+
		s.sparse*deltaRow*w/d/deltaHeads, fmt.Sprintf("decodes: states read and written / %.1f TB/s; prompts: %.2f us "+
		"a row of %d heads", x.Weights/1e6, deltaRow, deltaHeads))
}

// selecting adds the time of a layer that attends to the tokens of selected pools.
func (s *nextStep) selecting(h float64) {
	a, i, x := s.c.Attention, s.c.Indexer, s.x
	nope, v, latent, lora := float64(a.Nope), float64(a.V), float64(a.Latent), float64(a.QLora)
	index, pool := float64(i.Heads*i.Dim), float64(s.c.Pool)
	s.add("products", s.product(s.own, lora+latent, h, 1)+s.product(s.own, 2*layout.IndexDim, h, 2)+
		s.product(s.own, s.heads*nope, lora, 1)+s.product(s.own, h, s.heads*v, 1), s.productFormula())
	s.add("indexer", s.product(s.own, index, lora, 2)+s.product(s.own, float64(i.Heads), h, 2), s.indexFormula()+
		fmt.Sprintf("; a key for every %d tokens", s.c.Pool))
	if s.decodes > 0 {
		s.add("indexer", x.Launch+s.keys/pool*132/x.Keys+x.Pick+s.keys/pool*4/x.Scores, "")
	}
	s.add("indexer", s.pairs/pool*2*index/x.ScoreOps+s.pairs/pool*4/x.Scores, "")
	formula := fmt.Sprintf("decodes: interpolated between measured times of rows of %d heads, %s; prompts: %.1f us "+
		"for a row and 128 heads; absorb and expand are bf16 products", cost.DecodeHeads, s.cfg.SplitKeys.Says(),
		x.Prompt)
	n := s.decodes + s.sparse
	s.add("attention", s.product(n, s.heads*latent, nope, 2)+s.product(n, s.heads*v, latent, 2), formula)
	if s.decodes > 0 {
		s.add("attention", decoded(s.on.Decodes, s.cfg.SplitKeys, s.decodes*s.heads/cost.DecodeHeads), formula)
	}
	s.add("attention", s.sparse*s.heads/128*x.Prompt, formula)
}

// nextRest returns the bytes of weights other than experts on a GPU: FP8, but bf16 for the vocabulary, linear
// attention, the indexer, routers and hyper-connections.
func nextRest(c *config.Next) float64 {
	a, f, x := c.Attention, c.FFN, c.Indexer
	h, w, d, streams := float64(c.Hidden), float64(c.Linear.Width()), float64(c.Linear.Dim), float64(c.Hyper.Streams)
	total := 2 * 2 * float64(c.Vocab) * h
	for l := range c.Layers + c.NextN {
		if l < c.Layers {
			total += 2 * 2 * streams * (2 + streams) * streams * h
		}
		if l < c.Layers && c.Linear.Layers[l] {
			total += 2 * ((3*w+2*d+float64(c.Linear.Heads))*h + 2*w*d + h*w)
		} else { // up-projection of latent rows in bf16, as stored and transposed
			total += float64(a.QLora+a.Latent)*h + float64(a.Heads*a.QK()*a.QLora) + h*float64(a.Heads*a.V) +
				2*2*float64(a.Heads*(a.Nope+a.V)*a.Latent) + 2*(float64(x.Heads*x.Dim*a.QLora)+
				float64(2*layout.IndexDim+x.Heads)*h)
		}
		if l < c.Layers && f.Dense[l] {
			total += 3 * float64(f.DenseInner) * h
		} else {
			total += (float64(f.Shared)*3*float64(f.Inner) + 2*float64(f.Experts)) * h
		}
		if l >= c.Layers { // the drafting layer's projection of an embedding and a hidden state
			total += 2 * 2 * h * h
		}
	}
	return total
}

// nextCache returns the bytes of cache of the planned sequences: rows and keys of their tokens, and a state and a
// snapshot of each sequence.
func nextCache(c *config.Next) int64 {
	const page = 4 * layout.PageTokens
	s := next.SizesOf(c, layout.NopeFP8{}, layout.IndexFP8{}, page, 1)
	windows := kv.Window{Pages: 1, Tokens: hybrid.Window}.PerSequence(page)
	return Sequences * (s.Page*(Tokens/page+1) + int64(windows)*s.Window + s.State)
}

// nextRow returns the bytes of a step for each row of a prompt: residual streams, and the larger working memory of
// the two kinds of attention.
func nextRow(c *config.Next) float64 {
	a, w := c.Attention, float64(c.Linear.Width())
	linear := 2*(3+3+1+1)*w + 4*w
	latent := 2*float64(a.Heads*(a.QK()+2*a.Latent+2*a.V)+a.QLora) + float64(3*c.Indexer.Heads*c.Indexer.Dim) +
		4*float64(c.Indexer.TopK+c.PoolTopK())
	return 2*2*float64(c.Hyper.Streams*c.Hidden) + 2*4*float64(c.Hidden) + max(linear, latent)
}
