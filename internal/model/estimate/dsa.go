package estimate

import (
	"fmt"
	"math"

	"sparrow/internal/cost"
	"sparrow/internal/model/config"
	"sparrow/layout"
	"sparrow/plan"
)

// dsaStep estimates a step of DeepSeek-V3.2, GLM-5 or a similar model without an indexer.
type dsaStep struct {
	*parts
	c *config.DSA
}

func (s *dsaStep) run() {
	s.layers(s.c.Layers, s.layer)
	s.ends(float64(s.c.Vocab), float64(s.c.Hidden))
}

func (s *dsaStep) layer(l int) {
	a, c, x := s.c.Attention, s.c, s.x
	h := float64(c.Hidden)
	nope, rope, v, latent := float64(a.Nope), float64(a.Rope), float64(a.V), float64(a.Latent)
	index := 0.0
	if c.Indexer.Computes(l) {
		index = float64(c.Indexer.Heads * c.Indexer.Dim)
		s.add("indexer", s.product(s.own, float64(c.Indexer.Heads), h, 2), s.indexFormula())
		if s.decodes > 0 {
			s.add("indexer", x.Launch+s.keys*132/x.Keys+x.Pick+s.keys*4/x.Scores, "")
		}
		s.add("indexer", s.pairs*2*index/x.ScoreOps+s.pairs*4/x.Scores, "")
	}
	s.add("products", s.product(s.own, float64(a.QLora)+layout.IndexDim+latent+rope, h, 1)+
		s.product(s.own, s.heads*(nope+rope)+index, float64(a.QLora), 1)+s.product(s.own, h, s.heads*v, 1),
		s.productFormula())
	units := math.Ceil(s.heads / 64)
	if s.c.Family.Dense() {
		s.whole(units)
		s.block(l, h)
		return
	}
	attention := fmt.Sprintf("decodes: interpolated between measured times of rows of 128 heads, %s; prompts: %.1f "+
		"us for a row and 128 heads; dense: operations / %.0f TFLOP/s; absorb and expand are bf16 products",
		s.cfg.SplitKeys.Says(),
		x.Prompt, x.DenseOps/1e6)
	if n := s.decodes + s.sparse; n > 0 {
		s.add("attention", s.product(n, s.heads*latent, nope, 2)+s.product(n, s.heads*v, latent, 2), attention)
	}
	if s.decodes > 0 {
		s.add("attention", decoded(s.on.Decodes, s.cfg.SplitKeys, s.decodes*units*64/cost.DecodeHeads), attention)
	}
	s.add("attention", s.sparse*units/2*x.Prompt, attention)
	if s.denseRows > 0 {
		s.add("attention", s.dense*s.heads*(nope+rope+v)*2/x.DenseOps+
			s.product(s.wider, s.heads*(nope+v), latent, 2), attention)
	}
	s.block(l, h)
}

// Measured attention over every key, on an H200 with 656-byte rows: latentOps is operations per microsecond if all
// multiprocessors have work. Otherwise latentLaunch is the microseconds of a launch including the combination of parts,
// and latentBlock those of a block of 64 keys.
const latentOps, latentLaunch, latentBlock = 440e6, 12.0, 1.5

// whole adds the time of attention of a model without an indexer.
func (s *dsaStep) whole(units float64) {
	a, x := s.c.Attention, s.x
	nope, rope, v, latent := float64(a.Nope), float64(a.Rope), float64(a.V), float64(a.Latent)
	formula := fmt.Sprintf("attention over every key: the longer of operations of whole units of 64 heads / %.0f "+
		"TFLOP/s and %.1f us for 64 keys of a part, + %.0f us; dense: operations / %.0f TFLOP/s; absorb and expand "+
		"are bf16 products",
		latentOps/1e6, latentBlock, latentLaunch, x.DenseOps/1e6)
	for _, n := range [][2]float64{{s.decodes, s.keys}, {s.sparse, s.pairs}} {
		if rows, keys := n[0], n[1]; rows > 0 {
			part := min(keys/rows, float64(s.cfg.SplitKeys.Keys()))
			s.add("attention", s.product(rows, s.heads*latent, nope, 2)+s.product(rows, s.heads*v, latent, 2)+
				latentLaunch+max(keys*units*64*2*(latent+rope+latent)/latentOps, part/64*latentBlock), formula)
		}
	}
	if s.denseRows > 0 {
		s.add("attention", s.dense*s.heads*(nope+rope+v)*2/x.DenseOps+
			s.product(s.wider, s.heads*(nope+v), latent, 2), formula)
	}
}

// block adds the time of the feed-forward block of layer l, and of the remaining operations.
func (s *dsaStep) block(l int, h float64) {
	c := s.c
	if c.FFN.Dense[l] {
		inner := float64(c.FFN.DenseInner) / s.ranks
		s.add("products", s.product(s.rows, 2*inner, h, 1)+s.product(s.rows, h, inner, 1), "")
	} else {
		s.mixture(l)
	}
	s.rest("norms, residual sums, quantisation, rotation, rows stored")
	s.exchanges(h)
}

// decoded returns the microseconds of attention for a number of decode rows with cost.DecodeHeads heads. It
// interpolates between the measured numbers of rows; above the largest, time is proportional to the number of rows.
func decoded(measured []cost.Decode, split plan.KeySplit, rows float64) float64 {
	last := measured[0]
	for _, d := range measured {
		if n := float64(d.Rows); rows <= n {
			if d.Rows == last.Rows {
				return split.Micros(d)
			}
			from, to := split.Micros(last), split.Micros(d)
			return from + (to-from)*(rows-float64(last.Rows))/(n-float64(last.Rows))
		}
		last = d
	}
	return split.Micros(last) * rows / float64(last.Rows)
}

func (p *parts) indexFormula() string {
	return fmt.Sprintf("products, scores: 132 bytes a key / %.1f TB/s for decodes, operations / %.0f TFLOP/s for "+
		"prompts; selections: %.0f us, scores / %.1f TB/s", p.x.Keys/1e6, p.x.ScoreOps/1e6, p.x.Pick, p.x.Scores/1e6)
}

// dsaRest returns the bytes of weights other than experts on a GPU with some heads: FP8, except the vocabulary, the
// router and the indexer's small parts.
func dsaRest(c *config.DSA, heads, ranks float64) float64 {
	a, f, h := c.Attention, c.FFN, float64(c.Hidden)
	total := 2 * float64(c.Vocab) * h * 2 / ranks
	if c.TiedHead {
		total /= 2
	}
	for l := range c.Layers + c.NextN {
		total += float64(a.QLora)*h + float64(a.Latent+a.Rope)*h + heads*float64(a.QK())*float64(a.QLora) +
			2*2*heads*float64((a.Nope+a.V)*a.Latent) + h*heads*float64(a.V) // latent up-projection, bf16, stored twice
		if c.Indexer.Computes(l) {
			total += float64(c.Indexer.Heads*c.Indexer.Dim*a.QLora) + float64(c.Indexer.Dim)*h +
				2*float64(c.Indexer.Heads)*h
		}
		if l < c.Layers && f.Dense[l] {
			total += 3 * float64(f.DenseInner) * h / ranks
		} else {
			total += (float64(f.Shared)*3*float64(f.Inner)/ranks + 2*float64(f.Experts)) * h
		}
	}
	return total
}
