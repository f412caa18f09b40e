package estimate

import (
	"fmt"
	"io"
	"math"
	"text/tabwriter"

	"sparrow/internal/unit"
	"sparrow/layout"
	"sparrow/model/config"
	"sparrow/plan"
)

// Stage is a part of a step on one GPU.
type Stage struct {
	Name    string  `json:"name"`
	Micros  float64 `json:"microseconds"`
	Formula string  `json:"formula"`
}

// Estimate is the time of a step.
type Estimate struct {
	GPUs        int     `json:"gpus"`
	Rows        int     `json:"rows"`
	Stages      []Stage `json:"stages"`
	Millis      float64 `json:"milliseconds"`
	WeightBytes int64   `json:"weight_bytes"` // of each GPU
}

// Of estimates a step of a batch on GPUs that share a model (docs/ranks.md).
func Of(c *config.DSA, cfg *plan.Config, b *plan.Batch, gpus int) (*Estimate, error) {
	if cfg.Hardware.Arch != plan.SM90 || cfg.Layout != plan.FP8Row656 {
		return nil, fmt.Errorf("estimate: times were measured on an H200 with FP8 rows; ask for --hw h200, or for "+
			"several such as 8xh200, and --kv fp8, not for %v with %v", cfg.Hardware.Arch, cfg.Layout)
	}
	if n := max(cfg.Model.Ranks, 1); n != gpus {
		return nil, fmt.Errorf("estimate: the plan is for %d ranks, asked for %d GPUs", n, gpus)
	}
	if cfg.Model.ByRequests() {
		return nil, fmt.Errorf("estimate: times are those of ranks that share attention by heads; ask for " +
			"--attention tp")
	}
	e := &step{c: c, x: h200, ranks: float64(gpus), heads: float64(cfg.Model.Heads), top: float64(cfg.T),
		at: map[string]int{}}
	for i := range b.Requests {
		n, first := b.Rows(cfg, i), b.FirstPosition(cfg, i)
		e.rows += float64(n)
		e.logits += float64(max(b.Requests[i].Logits, 1))
		if b.Requests[i].Extend > 0 {
			e.prompt(float64(first), float64(n))
		} else {
			e.decodes += float64(n)
			e.keys += float64(n * (first + n))
		}
	}
	for l := range c.Layers {
		e.layer(l)
	}
	e.ends()
	out := &Estimate{GPUs: gpus, Rows: int(e.rows), Stages: e.stages, WeightBytes: e.weightBytes()}
	for _, s := range e.stages {
		out.Millis += s.Micros / 1000
	}
	return out, nil
}

// step is an estimate in progress.
type step struct {
	c     *config.DSA
	x     costs
	ranks float64
	heads float64 // of a rank
	top   float64 // keys up to which prompts run in the dense form

	rows, logits   float64
	decodes, keys  float64 // rows that decode, and the keys that they see
	sparse, pairs  float64 // rows of prompts that select, and the keys that they see
	dense          float64 // keys that rows of the dense form see
	denseRows, all float64 // such rows, and keys that are expanded for them

	stages []Stage
	at     map[string]int
}

// prompt adds rows of a prompt behind some tokens.
func (s *step) prompt(first, n float64) {
	d := max(0, min(n, s.top-first))
	if d > 0 {
		s.denseRows += d
		s.dense += d * (2*first + d + 1) / 2
		s.all += first + d
	}
	s.sparse += n - d
	s.pairs += (n - d) * (first + d + first + n + 1) / 2
}

// add adds time to a stage.
func (s *step) add(name string, micros float64, formula string) {
	i, ok := s.at[name]
	if !ok {
		i = len(s.stages)
		s.at[name] = i
		s.stages = append(s.stages, Stage{Name: name, Formula: formula})
	}
	s.stages[i].Micros += micros
}

// product is a product of rows with a weight of that many bytes a value.
func (s *step) product(rows, out, in, bytes float64) float64 {
	ops := s.x.fp8
	if bytes == 2 {
		ops = s.x.bf16
	}
	read := out * in * bytes / s.x.weights * (1 + s.x.rows64*min(rows, 64)/64)
	return s.x.launch + max(read, 2*rows*out*in/ops)
}

const productFormula = "a product: 1.8 us + the longer of bytes of weights / 4.0 TB/s (12 % more at 64 rows) and " +
	"operations / 1100 TFLOP/s FP8, 650 bf16"

func (s *step) layer(l int) {
	a, c, x := s.c.Attention, s.c, &s.x
	h := float64(c.Hidden)
	nope, rope, v, latent := float64(a.Nope), float64(a.Rope), float64(a.V), float64(a.Latent)
	index := 0.0
	if c.Indexer.Computes(l) {
		index = float64(c.Indexer.Heads * c.Indexer.Dim)
		s.add("indexer", s.product(s.rows, float64(c.Indexer.Heads), h, 2), "products, scores: 132 bytes a key / 3.9 "+
			"TB/s for decodes, operations / 1100 TFLOP/s for prompts; selections: 5 us, scores / 3.3 TB/s")
		if s.decodes > 0 {
			s.add("indexer", x.launch+s.keys*132/x.keys+x.pick+s.keys*4/x.scores, "")
		}
		s.add("indexer", s.pairs*2*index/x.scoreOps+s.pairs*4/x.scores, "")
	}
	s.add("products", s.product(s.rows, float64(a.QLora)+layout.IndexDim+latent+rope, h, 1)+
		s.product(s.rows, s.heads*(nope+rope)+index, float64(a.QLora), 1)+s.product(s.rows, h, s.heads*v, 1),
		productFormula)
	units := math.Ceil(s.heads / 64)
	const attention = "decodes: 10 us + 0.78 us for each row and 64 heads, at least 21; prompts: 1.0 us for a row " +
		"and 128 heads; dense: operations / 420 TFLOP/s; absorb and expand are bf16 products"
	if n := s.decodes + s.sparse; n > 0 {
		s.add("attention", s.product(n, s.heads*latent, nope, 2)+s.product(n, s.heads*v, latent, 2), attention)
	}
	if s.decodes > 0 {
		s.add("attention", max(x.least, x.first+s.decodes*units*x.unit), attention)
	}
	s.add("attention", s.sparse*units/2*x.prompt, attention)
	if s.denseRows > 0 {
		s.add("attention", s.dense*s.heads*(nope+rope+v)*2/x.denseOps+
			s.product(s.all, s.heads*(nope+v), latent, 2), attention)
	}
	f := c.FFN
	if f.Dense[l] {
		inner := float64(f.DenseInner) / s.ranks
		s.add("products", s.product(s.rows, 2*inner, h, 1)+s.product(s.rows, h, inner, 1), "")
	} else {
		s.experts(float64(f.Experts), float64(f.TopK), float64(f.Inner), float64(f.Shared), h)
	}
	s.add("rest", x.rest+s.rows*x.restRow, "norms, residual sums, quantisation, rotation, rows stored: 18 us + "+
		"0.22 us a row, in each layer")
	s.exchange(s.rows*h*2, 2)
}

// experts adds the experts of a layer: those that some row chooses are read, where choices are spread evenly.
func (s *step) experts(n, chosen, inner, shared, h float64) {
	x := &s.x
	inShared := inner * shared / s.ranks
	s.add("products", s.product(s.rows, 2*inShared, h, 1)+s.product(s.rows, h, inShared, 1)+
		s.product(s.rows, n, h, 2), productFormula)
	read := n * (1 - math.Pow(1-chosen/n, s.rows)) / s.ranks * 3 * inner * h / x.experts
	ops := 2 * s.rows * chosen / s.ranks * 3 * inner * h / x.expertOps
	s.add("experts", max(read, ops)+x.choose+s.rows*x.chooseRow, "14 us + 0.02 us a row for their choice + the "+
		"longer of bytes of chosen experts (evenly spread) / 4.45 TB/s and operations / 1000 TFLOP/s")
}

// exchange adds a number of all-reduces of some bytes on each GPU. Two shots receive every byte twice, but for the
// GPU's own.
func (s *step) exchange(bytes, n float64) {
	if s.ranks > 1 {
		s.add("links", n*(nvlink.wait+2*bytes*(s.ranks-1)/s.ranks/nvlink.rate), "an all-reduce: 8 us + 2 (N-1)/N "+
			"bytes / 450 GB/s; stated, not measured")
	}
}

// ends adds what is outside layers.
func (s *step) ends() {
	v, h := float64(s.c.Vocab), float64(s.c.Hidden)
	s.add("head", s.product(s.logits, v/s.ranks, h, 2), productFormula)
	s.exchange(s.rows*h*2, 1)
	if s.ranks > 1 {
		s.add("links", nvlink.wait+s.logits*v*4*(s.ranks-1)/s.ranks/nvlink.rate, "")
	}
	s.add("step", s.x.step, "40 us a step")
}

// weightBytes is what a GPU holds of the weights, FP8 but for the vocabulary, the router and the indexer's small parts.
func (s *step) weightBytes() int64 {
	a, c, f := s.c.Attention, s.c, s.c.FFN
	h := float64(c.Hidden)
	total := 2 * float64(c.Vocab) * h * 2 / s.ranks
	if c.TiedHead {
		total /= 2
	}
	for l := range c.Layers + c.NextN {
		total += float64(a.QLora)*h + float64(a.Latent+a.Rope)*h + s.heads*float64(a.QK())*float64(a.QLora) +
			2*s.heads*float64((a.Nope+a.V)*a.Latent) + h*s.heads*float64(a.V)
		if c.Indexer.Computes(l) {
			total += float64(c.Indexer.Heads*c.Indexer.Dim*a.QLora) + float64(c.Indexer.Dim)*h +
				2*float64(c.Indexer.Heads)*h
		}
		if l < c.Layers && f.Dense[l] {
			total += 3 * float64(f.DenseInner) * h / s.ranks
		} else {
			total += (float64(f.Experts+f.Shared)*3*float64(f.Inner)/s.ranks + 2*float64(f.Experts)) * h
		}
	}
	return int64(total)
}

// Print writes the estimate as a table.
func (e *Estimate) Print(w io.Writer) error {
	fmt.Fprintf(w, "\nestimate: %.2f ms for a step of %d rows on %d H200, %s of weights on each; computed from times "+
		"of one H200, not measured\n", e.Millis, e.Rows, e.GPUs, unit.Bytes(e.WeightBytes))
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, s := range e.Stages {
		fmt.Fprintf(t, "  %s\t%.0f us\t%s\n", s.Name, s.Micros, s.Formula)
	}
	return t.Flush()
}
