package next

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/attn/hybrid"
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
	attn  *hybrid.Pass
	dense nn.MLPSpace
	moe   nn.MoESpace
	head  model.Head
	batch hybrid.Batch
}

// Arrange takes the tensors of a pass of the main layers, or of the drafting layer, from an arena.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if p.Rows > w.streams.mem.Rows {
		return nil, fmt.Errorf("next: workspace holds %d rows, pass has %d", w.streams.mem.Rows, p.Rows)
	}
	// Memory for at least one state must exist, also for passes that are arranged before the first sequence exists.
	if err := m.Reserve(1); err != nil {
		return nil, err
	}
	if p.Pass != plan.PassTarget {
		return w.arrangeDraft(p, cfg, a)
	}
	s := &target{streams: w.streams.mem.Slice(0, p.Rows)}
	s.begin(w, p, cfg, a, m.config.Hyper.Streams*m.config.Hidden)
	s.sub = nn.TakeSublayer(a, m.Dev.Activation(), p.Rows, m.Config(), m.config.Hyper)
	if err := s.arrange(cfg, a, m.layers); err != nil {
		return nil, err
	}
	s.head = model.TakeHead(p, a, s.in, s.out, model.HeadShape{Activation: m.Dev.Activation(),
		Width: m.config.Hyper.Streams * m.config.Hidden, Ranks: 1})
	s.collapsed = a.Take(m.Dev.Activation(), p.Logits, m.config.Hidden)
	return s, nil
}

// begin takes the inputs and outputs of a pass from the arena. width is the number of values of a residual row.
func (s *pass) begin(work *workspace, p *plan.Plan, cfg *plan.Config, a *kernel.Arena, width int) {
	m := work.m
	*s = pass{m: m, work: work, list: m.List, plan: p, in: attn.TakeInputs(p, a)}
	w := model.Widths{Vocab: m.config.Vocab, Hidden: width}
	if p.Recorded > 0 || p.Replayed > 0 {
		w.Choices = cfg.Model.Choices()
	}
	s.out, s.ids = model.TakeOutputs(p, a, s.in, m.Dev.Activation(), w), s.in.Array(plan.TokenIDs)
	s.choices = model.NewChoices(p, s.in, s.out, w.Choices)
	s.choices.Count(m.Tally, s.in.Array(plan.Lengths))
}

// arrange takes the tensors of attention and feed-forward blocks of the given layers from the arena. The tensors of the
// head are taken afterwards.
func (s *pass) arrange(cfg *plan.Config, a *kernel.Arena, layers []layer) error {
	main, index, err := layouts(cfg)
	if err != nil {
		return err
	}
	s.layout = main.Kind()
	if s.attn, err = s.m.attn.Arrange(s.plan, s.in, a, hybrid.Layouts{Main: main.Kind(),
		Index: index.Kind()}); err != nil {
		return err
	}
	act := s.m.Dev.Activation()
	for i := range layers {
		a.Reset(s.attn.Kept)
		switch l := &layers[i]; {
		case l.dense != nil:
			s.dense = l.dense.Arrange(a, act, s.plan.Rows)
		case l.experts != nil:
			s.moe = l.experts.Arrange(a, act, s.plan.Rows)
		}
	}
	a.Reset(s.attn.Kept)
	return nil
}

func (s *pass) Inputs() kernel.Tensor { return s.in.Block }

func (s *pass) Outputs() *model.Outputs { return s.out }

// prepare fills the input arrays that every pass has.
func (s *pass) prepare(in *model.Input, block attn.Block) error {
	m := s.m
	if len(m.caches) == 0 {
		return fmt.Errorf("the model has no cache; call Allocate first")
	}
	for _, c := range m.caches {
		if have := c.Main.Layout; c.Main.Mem.Given() && have != s.layout {
			return plan.ErrLayout(s.layout.String(), have.String())
		}
	}
	if err := in.Batch.CheckPages(m.pages); err != nil {
		return err
	}
	states, err := m.AllKept(s.batch.States[:0], in, s.plan.Pass == plan.PassTarget)
	if err != nil {
		return err
	}
	s.batch = hybrid.Batch{Batch: &in.Batch, Windows: in.Windows, Pages: m.windows, States: states}
	if err := s.attn.Prepare(&s.batch, block); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), m.config.Vocab); err != nil {
		return err
	}
	if err := in.FillChoices(block); err != nil {
		return err
	}
	return block.FillLogits(&in.Batch)
}

// feedForward adds the output of layer i's feed-forward block for x to out.
func (s *pass) feedForward(i int, l *layer, out, x kernel.Tensor) {
	if l.dense != nil {
		l.dense.Run(s.list, &s.dense, nn.MLPArgs{X: x, Out: out, Add: true})
		return
	}
	l.experts.Run(s.list, &s.moe, out, x, s.plan.PromptRows(), s.choices.ExpertTap(i))
}

// target holds the tensors of a pass through the main layers.
type target struct {
	pass
	sub       nn.Sublayer
	streams   kernel.Tensor // [T, streams*hidden]: residual streams
	collapsed kernel.Tensor // [L, hidden]: output rows: sums of the streams
}

// Prepare checks the states and fills the input block.
func (s *target) Prepare(in *model.Input, words []int32) error {
	s.work.streams.rows = 0
	if err := s.prepare(in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("next: forward: %w", err)
	}
	for _, st := range s.batch.States {
		if st != nil { // nil for padding
			st.Begin()
		}
	}
	return nil
}

// Program returns the operations of the embedding, every layer and the head.
func (s *target) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

func (s *target) build() (kernel.Program, error) {
	m, h := s.m, s.m.config.Hidden
	s.list.At("embedding", -1)
	for i := range m.config.Hyper.Streams {
		s.list.Add(kernel.EmbedArgs{Out: s.streams.Columns(i*h, (i+1)*h), Table: m.embed, IDs: s.ids})
	}
	streams := kernel.HyperPreArgs{X: s.streams}
	for i := range m.layers {
		l := &m.layers[i]
		s.list.At("attention", i)
		s.sub.Run(s.list, &l.attnSite, l.inputNorm, streams, func(out, x kernel.Tensor) {
			if l.linear != nil {
				s.attn.Linear(i, l.linear, m.caches[i], out, x)
			} else {
				s.attn.Layer(i, l.attn, m.caches[i], out, x, false, s.choices.Tap(i))
			}
		})
		s.list.At("feed-forward", i)
		s.sub.Run(s.list, &l.ffnSite, l.postNorm, streams, func(out, x kernel.Tensor) { s.blockOf(i, l, out, x) })
		s.choices.KeepHidden(s.list, i, s.streams)
	}
	if s.plan.Logits > 0 {
		s.list.At("head", -1)
		picked := s.head.Pick(s.list, s.streams)
		s.list.Add(kernel.MeanStreamsArgs{Out: s.collapsed, X: picked, Streams: m.config.Hyper.Streams})
		s.list.Add(kernel.NormArgs{Out: s.collapsed, X: s.collapsed, Weight: m.norm, Eps: m.config.RMSEps})
		s.head.Logits(s.list, s.collapsed, m.head)
	}
	return s.list.Compile()
}

// blockOf writes the output of layer i's feed-forward block for x to out. In a mixture of experts, the shared experts
// are added first.
func (s *target) blockOf(i int, l *layer, out, x kernel.Tensor) {
	if l.dense != nil {
		l.dense.Run(s.list, &s.dense, nn.MLPArgs{X: x, Out: out})
		return
	}
	l.experts.Write(s.list, &s.moe, out, x, s.plan.PromptRows(), s.choices.ExpertTap(i))
}

// Ended makes the hidden states of this pass valid as inputs of drafting passes, unless the pass failed.
func (s *target) Ended(err error) {
	if err == nil {
		s.work.streams.rows = s.plan.Rows
	}
}
