package estimate

import (
	"fmt"

	"sparrow/internal/model/config"
	"sparrow/layout"
)

// v4Step estimates a step of DeepSeek-V4, from measured times of single kernels; three whole steps of DeepSeek-V4-Flash
// were measured for comparison.
type v4Step struct {
	*parts
	c *config.V4
}

// usualKeys is the number of keys of a row in the measured attention: 128 window entries and 512 selected entries.
const usualKeys = 128 + 512

func (s *v4Step) run() {
	s.layers(s.c.Layers, s.layer)
	s.ends(float64(s.c.Vocab), float64(s.c.Hidden))
}

func (s *v4Step) layer(l int) {
	a, x := s.c.Attention, s.x
	h, dim, lora := float64(s.c.Hidden), float64(a.Dim), float64(a.QLora)
	streams := float64(s.c.Hyper.Streams)
	ratio := a.Ratios[l]
	// Each of the two sublayers reads the streams to compute its input, and reads and writes them to add its output.
	sites := 2 * (s.product(s.rows, streams*(2+streams), streams*h, 2) + 2*x.Launch + 3*s.rows*streams*h*2/x.Weights)
	s.add("streams", sites, fmt.Sprintf("for each sublayer: a bf16 product, two launches and three times the bytes "+
		"of all streams / %.1f TB/s", x.Weights/1e6))
	together := float64(a.Heads / a.Groups)
	groups := s.heads / together
	s.add("products", s.product(s.own, lora+dim, h, 1)+s.product(s.own, s.heads*dim, lora, 1)+
		groups*s.product(s.own, float64(a.OLora), together*dim, 1)+
		s.product(s.own, h, groups*float64(a.OLora), 1), s.productFormula())
	if ratio > 0 {
		wide := dim
		if ratio == 4 {
			wide = 2 * (dim + layout.IndexDim)
		}
		s.add("compressors", s.product(s.own, 2*wide, h, 2)+4*x.Launch, fmt.Sprintf("bf16 products and four launches "+
			"of %.1f us", x.Launch))
	}
	if ratio == 4 {
		s.indexer(lora, h)
	}
	s.attention(ratio)
	s.mixture(l)
	s.rest("norms, quantisation, rotation, entries stored")
	s.add("launches", x.V4Launches*x.V4Launch, fmt.Sprintf("%.0f launches in each layer, each %.1f us in addition "+
		"to the other stages", x.V4Launches, x.V4Launch))
	s.exchanges(h)
}

// indexer adds the times of the scores of groups of 4 tokens and of their selection.
func (s *v4Step) indexer(lora, h float64) {
	i, x := s.c.Indexer, s.x
	s.add("indexer", s.product(s.own, float64(i.Heads*i.Dim), lora, 1)+s.product(s.own, float64(i.Heads), h, 2),
		s.indexFormula()+"; a key for every 4 tokens")
	if s.decodes > 0 {
		s.add("indexer", x.Launch+s.keys/4*132/x.Keys+x.Pick+s.keys/4*4/x.Scores, "")
	}
	s.add("indexer", s.pairs/4*2*float64(i.Heads*i.Dim)/x.ScoreOps+s.pairs/4*4/x.Scores, "")
}

// attention adds the time of attention over window entries and over the compressed entries that rows attend to.
func (s *v4Step) attention(ratio int) {
	x := s.x
	share := func(rows, keys float64) float64 { // fraction of the measured time, by the mean number of keys of the rows
		if rows == 0 {
			return 0
		}
		seen := float64(s.c.Attention.Window)
		switch ratio {
		case 4:
			seen += min(keys/rows/4, float64(s.c.Indexer.TopK))
		case 128:
			seen += keys / rows / 128
		}
		return s.heads / 64 * seen / usualKeys
	}
	formula := fmt.Sprintf("decodes: %.1f us + %.2f us a row, prompts: %.3f us a row, for 64 heads over 640 keys; "+
		"otherwise in proportion to heads and keys", x.V4First, x.V4Row, x.V4Prompt)
	if s.decodes > 0 {
		s.add("attention", x.V4First+s.decodes*x.V4Row*share(s.decodes, s.keys), formula)
	}
	s.add("attention", s.sparse*x.V4Prompt*share(s.sparse, s.pairs), formula)
}

// v4Rest returns the bytes of weights other than experts on a GPU with the given number of heads: FP8, but bf16 for
// the vocabulary, routers, compressors and hyper-connections.
func v4Rest(c *config.V4, heads, ranks float64) float64 {
	a, f, x := c.Attention, c.FFN, c.Indexer
	h, dim, streams := float64(c.Hidden), float64(a.Dim), float64(c.Hyper.Streams)
	lora, together := float64(a.QLora), float64(a.Heads/a.Groups)
	low := heads / together * float64(a.OLora)
	total := 2 * 2 * float64(c.Vocab) * h / ranks
	for l := range c.Layers + c.NextN {
		total += 2 * 2 * streams * (2 + streams) * streams * h
		total += (lora+dim)*h + heads*dim*lora + low*together*dim + low*h
		total += 3*float64(f.Inner*f.Shared)/ranks*h + 2*float64(f.Experts)*h
		if l >= len(a.Ratios) {
			if c.DSpark == nil { // a drafting layer has two further projections
				total += 2 * h * h
			}
			continue
		}
		switch a.Ratios[l] {
		case 4:
			total += 2*2*2*(dim+layout.IndexDim)*h + float64(x.Heads*x.Dim)*lora + 2*float64(x.Heads)*h
		case 128:
			total += 2 * 2 * dim * h
		}
	}
	if d := c.DSpark; d != nil { // the projection of the tapped layers' outputs, and the Markov head
		total += float64(len(d.Taps))*h*h + 2*2*float64(c.Vocab*d.Rank)
	}
	return total
}
