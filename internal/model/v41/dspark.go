package v41

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/spark"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// sparkHead is a DSpark draft head (v41 spec, 8). Its stages read the inputs of the tapped layers, use the coefficients
// of the previous sublayer like layers, and have their own experts.
type sparkHead struct {
	*spark.Head
	stages []layer
}

// block holds the tensors of a pass of the drafting stages, with a block of rows for each request.
type block struct {
	pass
	attn  *dual.BlockPass
	block spark.Block
}

func (m *Model) arrangeBlock(p *plan.Plan, cfg *plan.Config, a *kernel.Arena, window layout.V4) (model.Pass, error) {
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	if err := m.spark.Fits(p); err != nil {
		return nil, fmt.Errorf("v41: draft: %w", err)
	}
	act := m.Dev.Activation()
	s := &block{}
	s.begin(m, p, cfg, a)
	s.streams = a.Take(act, p.Rows, m.config.Hyper.Streams*m.config.Hidden)
	s.attn = m.attn.ArrangeBlock(p, s.in, a, window)
	a.Reset(s.attn.Kept)
	s.ffn = m.spark.stages[0].ffn.Arrange(a, act, p.Rows)
	a.Reset(s.attn.Kept)
	s.finish(a)
	s.block = m.spark.TakeBlock(a, act, p)
	return s, nil
}

func (s *block) Prepare(in *model.Input, words []int32) error {
	if err := s.m.spark.Prepare(&s.block, s.attn, in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("v41: draft: %w", err)
	}
	return nil
}

// Program returns the operations of the stages and the heads.
func (s *block) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

func (s *block) build() (kernel.Program, error) {
	m, c, head := s.m, s.m.config, s.m.spark
	s.embed()
	s.attn.Begin()
	for k := range head.stages {
		l := &head.stages[k]
		s.list.At("attention of a drafting stage", k)
		s.sublayer(&l.attnSite, l.attnNorm, k == 0, func(out, x kernel.Tensor) {
			s.attn.Attend(l.attn, head.Windows[k], out, x)
		})
		s.list.At("feed-forward of a drafting stage", k)
		s.sublayer(&l.ffnSite, l.ffnNorm, false, func(out, x kernel.Tensor) {
			tap := s.choices.ExpertTap(c.Layers + k)
			l.ffn.Add(s.list, &s.ffn, out, x, 0, &tap)
		})
	}
	s.list.At("head of the drafting stages", -1)
	h := head.Collapsed(&s.block)
	s.collapse(h)
	s.list.Add(kernel.NormArgs{Out: s.collapsed, X: h, Weight: head.Norm, Eps: c.RMSEps})
	s.head.Multiply(s.list, s.collapsed, m.head)
	head.Chain(s.list, &s.block, &s.head, s.ids, s.out.Confidence)
	return s.list.Compile()
}
