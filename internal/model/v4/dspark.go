package v4

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/internal/model/spark"
	"sparrow/kernel"
	"sparrow/plan"
)

// sparkHead holds the weights and caches of a DSpark draft head.
type sparkHead struct {
	*spark.Head
	stages []layer
	last   nn.Site
}

// loadStages loads a DSpark head if the checkpoint has one.
func (m *Model) loadStages(l *nn.Loader) {
	c, d := m.config, m.config.DSpark
	if !l.HasPrefix(draftPrefix) {
		return
	}
	s := &sparkHead{}
	for k := range d.Stages {
		at := func(name string) string { return fmt.Sprintf("mtp.%d.%s", k, name) }
		s.stages = append(s.stages, loadLayer(c, l, at, 0, expertNames{layer: c.Layers + k}))
	}
	last := func(name string) string { return fmt.Sprintf("mtp.%d.%s", d.Stages-1, name) }
	s.Head = spark.Load(l, c, "markov_head.markov_w1.weight", "markov_head.markov_w2.weight")
	s.last = l.Site(last, "hc_head_", c.Hyper.Streams*c.Hidden, c.Hyper.Streams, 1)
	m.spark = s
}

func (m *Model) takeTaps(a *kernel.Arena, cfg *plan.Config, rows int) (tapped kernel.Tensor) {
	if m.spark != nil && cfg.N > 1 {
		tapped = m.spark.TakeTaps(a, m.Dev.Activation(), rows)
	}
	return tapped
}

// tap stores the mean of the streams after layer i, if the drafting stages read it.
func (s *target) tap(i int) {
	if s.tapped.Given() {
		s.m.spark.Tap(s.list, i, s.tapped, s.streams, s.sub.Mix.Columns(0, s.m.config.Hyper.Streams))
	}
}

// context stores the entries that the drafting stages need for the tokens of the pass.
func (s *target) context() {
	if !s.tapped.Given() {
		return
	}
	head := s.m.spark
	head.Context(s.list, s.sub.X, s.tapped)
	for k := range head.stages {
		s.attn.Context(head.stages[k].attn, head.Windows[k], s.sub.X)
	}
}

// block holds the tensors of a pass of the drafting stages, with a block of rows for each request.
type block struct {
	pass
	attn    *dual.BlockPass
	streams kernel.Tensor // [R, streams*hidden]: residual streams
	block   spark.Block
}

func (w *workspace) arrangeBlock(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	c, act := m.config, m.Dev.Activation()
	if m.spark == nil {
		return nil, fmt.Errorf("v4: draft: the checkpoint has no stages that draft blocks")
	}
	if err := m.spark.Fits(p); err != nil {
		return nil, fmt.Errorf("v4: draft: %w", err)
	}
	entry, _, err := layouts(cfg)
	if err != nil {
		return nil, err
	}
	s := &block{}
	s.begin(w, p, cfg, a)
	s.streams = a.Take(act, p.Rows, c.Hyper.Streams*c.Hidden)
	s.sub = nn.TakeSublayer(a, act, p.Rows, m.Config(), c.Hyper)
	s.attn = m.attn.ArrangeBlock(p, s.in, a, entry)
	a.Reset(s.attn.Kept)
	s.ffn = m.spark.stages[0].ffn.arrange(a, act, p.Rows, c.FFN.TopK)
	a.Reset(s.attn.Kept)
	s.finish(a)
	s.block = m.spark.TakeBlock(a, act, p)
	return s, nil
}

func (s *block) Prepare(in *model.Input, words []int32) error {
	if err := s.m.spark.Prepare(&s.block, s.attn, in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("v4: draft: %w", err)
	}
	return nil
}

// Program returns the operations of the stages and the heads.
func (s *block) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

func (s *block) build() (kernel.Program, error) {
	m, c, head := s.m, s.m.config, s.m.spark
	s.embed(s.streams)
	s.attn.Begin()
	streams := kernel.HyperPreArgs{X: s.streams}
	for k := range head.stages {
		l := &head.stages[k]
		s.list.At("attention of a drafting stage", k)
		s.sub.Run(s.list, &l.attnSite, l.attnNorm, streams, func(out, x kernel.Tensor) {
			s.attn.Attend(l.attn, head.Windows[k], out, x)
		})
		s.list.At("feed-forward of a drafting stage", k)
		s.sub.Run(s.list, &l.ffnSite, l.ffnNorm, streams, func(out, x kernel.Tensor) {
			m.feedForward(&l.ffn, &s.ffn, out, x, s.ids, 0, s.choices.ExpertTap(c.Layers+k))
		})
	}
	s.list.At("head of the drafting stages", -1)
	h := head.Collapsed(&s.block)
	s.collapse(h, s.streams, &head.last)
	s.list.Add(kernel.NormArgs{Out: s.collapsed, X: h, Weight: head.Norm, Eps: c.RMSEps})
	s.head.Multiply(s.list, s.collapsed, m.head)
	head.Chain(s.list, &s.block, &s.head, s.ids, s.out.Confidence)
	return s.list.Compile()
}

// Ended does nothing, because no later pass reads data of a block.
func (s *block) Ended(error) {}
