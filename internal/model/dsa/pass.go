package dsa

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/attn/mla"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// pass holds the tensors that passes of the main layers and of the drafting layer have. Attention, feed-forward blocks
// and head run one after another and use the same memory.
type pass struct {
	m    *Model
	work *workspace
	list *kernel.Builder // builder of the list of operations
	plan *plan.Plan
	made model.Compiled

	layout layout.Kind // byte layout of the rows in the cache

	in  attn.Inputs
	out *model.Outputs

	choices model.Choices

	ids   kernel.Tensor // i32 [T, 1]: tokens of the rows
	x     kernel.Tensor // [T, hidden]: normalised rows
	attn  *mla.Pass
	dense nn.MLPSpace
	moe   nn.MoESpace
	head  model.Head
}

// Arrange takes the tensors of a pass of the main layers, or of the drafting layer, from an arena.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	if p.Rows > w.hidden.mem.Rows {
		return nil, fmt.Errorf("dsa: workspace holds %d rows, pass has %d", w.hidden.mem.Rows, p.Rows)
	}
	if p.Pass != plan.PassTarget {
		return w.arrangeDraft(p, cfg, a)
	}
	out := &target{h: w.hidden.mem.Slice(0, p.Rows)}
	return out, out.arrange(w, p, cfg, a, w.m.layers)
}

// arrange takes the tensors of a pass through the given layers from an arena.
func (s *pass) arrange(work *workspace, p *plan.Plan, cfg *plan.Config, a *kernel.Arena, layers []layer) error {
	m := work.m
	act, c := m.Dev.Activation(), m.config
	*s = pass{m: m, work: work, list: m.List, plan: p, in: attn.TakeInputs(p, a)}
	w := model.Widths{Vocab: c.Vocab, Hidden: c.Hidden}
	if p.Recorded > 0 || p.Replayed > 0 {
		w.Choices = cfg.Model.Choices()
	}
	s.out = model.TakeOutputs(p, a, s.in, act, w)
	s.choices = model.NewChoices(p, s.in, s.out, w.Choices)
	s.choices.Count(m.Tally, s.in.Array(plan.Lengths))
	s.ids, s.x = s.in.Array(plan.TokenIDs), a.Take(act, p.Rows, c.Hidden)
	main, index, err := layouts(cfg)
	if err != nil {
		return err
	}
	s.layout = main.Kind()
	kinds := mla.Layouts{Main: main.Kind()}
	if index != nil {
		kinds.Index = index.Kind()
	}
	if s.attn, err = m.attn.Arrange(p, cfg, s.in, a, kinds); err != nil {
		return err
	}
	for i := range layers {
		a.Reset(s.attn.Kept)
		switch l := &layers[i]; {
		case l.dense != nil:
			s.dense = l.dense.Arrange(a, act, p.Rows)
		case l.experts != nil:
			s.moe = l.experts.Arrange(a, act, p.Rows)
		}
	}
	a.Reset(s.attn.Kept)
	s.head = model.TakeHead(p, a, s.in, s.out,
		model.HeadShape{Activation: act, Width: c.Hidden, Ranks: m.Ranks.Count()})
	return nil
}

func (s *pass) Inputs() kernel.Tensor { return s.in.Block }

func (s *pass) Outputs() *model.Outputs { return s.out }

// prepare fills the input arrays that every pass has.
func (s *pass) prepare(in *model.Input, block attn.Block, cache mla.Cache) error {
	if have := cache.Main.Layout; have != s.layout {
		return plan.ErrLayout(s.layout.String(), have.String())
	}
	if err := in.Batch.CheckPages(cache.Main.Pages()); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), s.m.config.Vocab); err != nil {
		return err
	}
	if err := s.attn.Prepare(&in.Batch, block); err != nil {
		return err
	}
	if err := in.FillChoices(block); err != nil {
		return err
	}
	return block.FillLogits(&in.Batch)
}

// embed looks up the tokens of the pass. With several ranks, an all-reduce adds the rows of all ranks: a token's row is
// zeros except on the rank that has it.
func (s *pass) embed(out kernel.Tensor, table kernel.Matrix) {
	s.list.Add(kernel.EmbedArgs{Out: out, Table: table, IDs: s.ids, Part: s.m.Ranks.Part(s.m.config.Vocab)})
	s.list.Add(kernel.AllReduceArgs{X: out})
}

// layer adds the outputs of one layer to the residual rows h.
func (s *pass) layer(i int, l *layer, c mla.Cache, h kernel.Tensor) {
	s.list.At("attention", i)
	s.list.Add(kernel.NormArgs{Out: s.x, X: h, Weight: l.inputNorm, Eps: s.m.config.RMSEps})
	s.attn.Layer(i, &l.attn, c, h, s.x, s.choices.Tap(i))
	s.list.At("feed-forward", i)
	s.list.Add(kernel.NormArgs{Out: s.x, X: h, Weight: l.postNorm, Eps: s.m.config.RMSEps})
	if l.dense != nil {
		l.dense.Run(s.list, &s.dense, nn.MLPArgs{X: s.x, Out: h, Add: s.list.First()})
	} else {
		l.experts.Run(s.list, &s.moe, h, s.x, s.plan.PromptRows(), s.choices.ExpertTap(i))
	}
	s.list.Add(kernel.AllReduceArgs{X: h})
}

// target holds the tensors of a pass through the main layers.
type target struct {
	pass
	h kernel.Tensor // [T, hidden]: residual rows
}

func (s *target) Prepare(in *model.Input, block []int32) error {
	s.work.hidden.rows = 0
	if len(s.m.caches) == 0 {
		return fmt.Errorf("dsa: forward: the model has no cache; call Allocate first")
	}
	if err := s.prepare(in, attn.NewBlock(s.plan, block), s.m.caches[0]); err != nil {
		return fmt.Errorf("dsa: forward: %w", err)
	}
	return nil
}

// Program returns the operations of the embedding, every layer and the head.
func (s *target) Program() (kernel.Program, error) { return s.made.Program(s.m.allocated, s.build) }

func (s *target) build() (kernel.Program, error) {
	m := s.m
	s.list.At("embedding", -1)
	s.embed(s.h, m.embed)
	s.attn.Begin()
	for i := range m.layers {
		s.layer(i, &m.layers[i], m.caches[i], s.h)
		s.choices.KeepHidden(s.list, i, s.h)
	}
	if s.plan.Logits > 0 {
		s.list.At("head", -1)
		picked := s.head.Pick(s.list, s.h)
		s.list.Add(kernel.NormArgs{Out: picked, X: picked, Weight: m.norm, Eps: m.config.RMSEps})
		s.head.Logits(s.list, picked, m.head)
	}
	return s.list.Compile()
}

// Ended makes the hidden states of this pass valid as inputs of drafting passes, unless the pass failed.
func (s *target) Ended(err error) {
	if err == nil {
		s.work.hidden.rows = s.plan.Rows
	}
}
