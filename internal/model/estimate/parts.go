package estimate

import (
	"fmt"
	"math"

	"sparrow/internal/cost"
	"sparrow/internal/model/config"
	"sparrow/internal/model/placement"
	"sparrow/plan"
)

// parts holds the state of an estimate: the batch, and the stages that every family has.
type parts struct {
	on    *cost.Machine
	x     *cost.GPU // the GPU of the machine
	ranks float64
	heads float64 // query heads of a rank
	top   float64 // maximum keys of a prompt row in the dense form
	cfg   *plan.Config
	all   experts
	// format is the format of the experts.
	format cost.Format
	split  *split // experts that are partly in host memory; nil if all experts are on the device

	rows, logits float64
	// Numbers of rows and keys of the rank's part of attention. own is the number of rows: all rows, if attention is
	// divided by heads.
	own              float64
	decodes, keys    float64 // decode rows, and the keys that they attend to
	sparse, pairs    float64 // prompt rows that select, and the keys that they attend to
	dense            float64 // keys that rows in the dense form attend to
	denseRows, wider float64 // rows in the dense form, and keys that are expanded for these rows

	stages []Stage
	at     map[string]int
	means  map[uses]float64 // results of uses.mean, stored because most layers have equal uses
}

// experts holds the numbers and the sizes of a model's experts.
type experts struct {
	layers        []int // number of experts of each layer, drafting layers last
	chosen        float64
	inner, hidden float64
	shared        float64
}

// count returns the number of experts in all layers.
func (e *experts) count() (n int) {
	for _, k := range e.layers {
		n += k
	}
	return n
}

// most returns the maximum number of experts of a layer.
func (e *experts) most() (n int) {
	for _, k := range e.layers {
		n = max(n, k)
	}
	return n
}

// values returns the number of weights of one expert.
func (e *experts) values() float64 { return 3 * e.inner * e.hidden }

// expertsOf returns the experts that a config describes.
func expertsOf(d config.Description) experts {
	common := d.Common()
	e := experts{layers: make([]int, common.Layers+common.NextN), hidden: float64(common.Hidden)}
	switch c := d.(type) {
	case *config.DSA:
		e.chosen, e.inner, e.shared = float64(c.FFN.TopK), float64(c.FFN.Inner), float64(c.FFN.Shared)
		for l := range e.layers {
			if l >= len(c.FFN.Dense) || !c.FFN.Dense[l] {
				e.layers[l] = c.FFN.Experts
			}
		}
	case *config.Next:
		e.chosen, e.inner, e.shared = float64(c.FFN.TopK), float64(c.FFN.Inner), float64(c.FFN.Shared)
		for l := range e.layers {
			if l >= len(c.FFN.Dense) || !c.FFN.Dense[l] {
				e.layers[l] = c.FFN.Experts
			}
		}
	case *config.V4:
		e.chosen, e.inner, e.shared = float64(c.FFN.TopK), float64(c.FFN.Inner), float64(c.FFN.Shared)
		for l := range e.layers {
			e.layers[l] = c.FFN.Experts
		}
	case *config.V41: // the experts of drafting stages are always on the device
		e.chosen, e.inner, e.shared = float64(c.FFN.TopK), float64(c.FFN.Inner), float64(c.FFN.Shared)
		e.layers = e.layers[:c.Layers]
		for l := range e.layers {
			e.layers[l] = c.FFN.Experts
		}
	}
	return e
}

// newParts returns the empty estimate of a rank.
func newParts(d config.Description, cfg *plan.Config, b *plan.Batch, m *Machine, s *split, rank int) *parts {
	p := &parts{on: &m.Machine, x: &m.GPU, ranks: float64(m.GPUs), heads: float64(cfg.Model.Heads), top: float64(cfg.T),
		cfg: cfg, all: expertsOf(d), format: releasedFormat(d), split: s, at: map[string]int{},
		means: map[uses]float64{}}
	if s != nil {
		p.format = s.ask.Format
	}
	if !cfg.DenseOK {
		p.top = 0
	}
	for i := range b.Requests {
		n, first := b.Rows(cfg, i), b.FirstPosition(cfg, i)
		p.rows += float64(n)
		p.logits += float64(max(b.Requests[i].Logits, 1))
		if b.Requests[i].Rank != rank {
			continue
		}
		p.own += float64(n)
		if b.Requests[i].Extend > 0 {
			p.prompt(float64(first), float64(n))
		} else {
			p.decodes += float64(n)
			p.keys += float64(n * (first + n))
		}
	}
	return p
}

// prompt adds n rows of a prompt that follow `first` earlier tokens.
func (p *parts) prompt(first, n float64) {
	d := max(0, min(n, p.top-first))
	if d > 0 {
		p.denseRows += d
		p.dense += d * (2*first + d + 1) / 2
		p.wider += first + d
	}
	p.sparse += n - d
	p.pairs += (n - d) * (first + d + first + n + 1) / 2
}

func (p *parts) add(name string, micros float64, formula string) {
	i, ok := p.at[name]
	if !ok {
		i = len(p.stages)
		p.at[name] = i
		p.stages = append(p.stages, Stage{Name: name, Formula: formula})
	}
	p.stages[i].Micros += micros
}

// sum returns the time of all stages so far.
func (p *parts) sum() (micros float64) {
	for _, s := range p.stages {
		micros += s.Micros
	}
	return micros
}

// product returns the time of a product of rows with a weight that has the given number of bytes per value.
func (p *parts) product(rows, out, in, bytes float64) float64 {
	ops := p.x.FP8
	if bytes == 2 {
		ops = p.x.BF16
	}
	read := out * in * bytes / p.x.Weights * (1 + p.x.Rows64*min(rows, 64)/64)
	return p.x.Launch + max(read, 2*rows*out*in/ops)
}

func (p *parts) productFormula() string {
	return fmt.Sprintf("each product takes %.1f us + the longer of weight bytes / %.1f TB/s (%.0f %% more at 64 rows) "+
		"and operations / %.0f TFLOP/s in FP8 or %.0f in bf16", p.x.Launch, p.x.Weights/1e6, 100*p.x.Rows64,
		p.x.FP8/1e6,
		p.x.BF16/1e6)
}

// exchange adds the time of an exchange of the given bytes on each GPU. times is how often a GPU receives every byte of
// the other GPUs: 2 for an all-reduce, 1 for a gather.
func (p *parts) exchange(bytes, times float64) {
	if l := p.on.Link; p.ranks > 1 {
		p.add("links", l.Wait+times*bytes*(p.ranks-1)/p.ranks/l.Rate, fmt.Sprintf("each exchange takes %.0f us + "+
			"(N-1)/N of the bytes / %.0f GB/s, twice that in an all-reduce; published rates, not measured ones",
			l.Wait, l.Rate/1e3))
	}
}

// exchanges adds the times of the exchanges of a layer: a sum of all rows after attention, or a gather if requests are
// divided, and a sum after the feed-forward block.
func (p *parts) exchanges(hidden float64) {
	behind := 2.0
	if p.cfg.Model.ByRequests() {
		behind = 1
	}
	p.exchange(p.rows*hidden*2, behind)
	p.exchange(p.rows*hidden*2, 2)
}

// rest adds the time of the small operations of a layer; half of it is for attention.
func (p *parts) rest(what string) {
	p.add("rest", p.x.Rest+(p.rows+p.own)/2*p.x.RestRow, fmt.Sprintf("%s: %.0f us + %.2f us a row, in each layer", what,
		p.x.Rest, p.x.RestRow))
}

// layers adds the time of n layers, including the time that each waits for experts in host memory.
func (p *parts) layers(n int, layer func(l int)) {
	for l := range n {
		before := p.sum()
		layer(l)
		p.stream(l, p.sum()-before)
	}
}

// ends adds the time of the operations outside layers.
func (p *parts) ends(vocabulary, hidden float64) {
	p.add("head", p.product(p.logits, vocabulary/p.ranks, hidden, 2), p.productFormula())
	p.exchange(p.rows*hidden*2, 2)
	p.exchange(p.logits*vocabulary*4, 1)
	p.add("step", p.x.Step, fmt.Sprintf("%.0f us a step", p.x.Step))
}

// mixture adds the experts of layer l, including the shared experts: only experts that at least one row chooses are
// read.
func (p *parts) mixture(l int) {
	e, x := &p.all, p.x
	n := float64(e.layers[l])
	format := p.format
	inner := e.inner * e.shared / p.ranks
	shared := p.product(p.rows, 2*inner, e.hidden, 1) + p.product(p.rows, e.hidden, inner, 1)
	p.add("products", shared+p.product(p.rows, n, e.hidden, 2), p.productFormula())
	bytes, rate := bytesOf(format, e.values()), x.ExpertOps
	if p.split != nil {
		bytes = float64(p.split.ask.Bytes)
	}
	switch format {
	case cost.BF16:
		rate = x.WideExpertOps
	case cost.E2M1:
		rate = x.NarrowExpertOps
	case cost.E4M3:
	}
	// read is the number of experts that the device reads; used is the number of a row's chosen experts that the device
	// computes.
	read, used := n*(1-math.Pow(1-e.chosen/n, p.rows)), e.chosen
	if p.split != nil {
		_, read, used = p.over(l, placement.Resident, placement.Fetched)
	}
	reads := x.Experts
	if format == cost.E2M1 {
		reads = x.NarrowExperts
	}
	device := max(read/p.ranks*bytes/reads, 2*p.rows*used/p.ranks*e.values()/rate)
	p.add("experts", device+x.Choose+p.rows*x.ChooseRow, fmt.Sprintf("%.0f us + %.2f us a row to choose experts + the "+
		"longer of bytes of chosen experts / %.2f TB/s and operations / %.0f TFLOP/s", x.Choose, x.ChooseRow,
		reads/1e6, rate/1e6))
	if p.split != nil {
		p.onHost(l, device+shared)
	}
}

// releasedFormat returns the format of the experts in releases of a family.
func releasedFormat(d config.Description) cost.Format {
	switch d.(type) {
	case *config.V4, *config.V41:
		return cost.E2M1
	}
	return cost.E4M3
}

// bytesOf returns the memory of values in a format, scales included: a float32 for each 128 x 128 values, or a byte for
// each 32 values.
func bytesOf(f cost.Format, values float64) float64 {
	switch f {
	case cost.E4M3:
		return values * (1 + 4./(128*128))
	case cost.E2M1:
		return values * (1./2 + 1./32)
	}
	return 2 * values
}
