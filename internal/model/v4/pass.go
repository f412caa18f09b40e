package v4

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// pass holds the tensors that passes of the main layers and of the drafting block have. Attention, feed-forward blocks
// and head run one after another and use the same memory.
type pass struct {
	m    *Model
	work *workspace
	list *kernel.Builder // builder of the list of operations
	plan *plan.Plan
	made model.Compiled

	in  attn.Inputs
	out *model.Outputs

	choices model.Choices

	ids  kernel.Tensor // i32 [T, 1]: tokens of the rows
	sub  nn.Sublayer
	ffn  expertSpace
	head model.Head
	// mix holds the coefficients of the streams of the output rows, f32 [L, streams]; collapsed holds the combined
	// rows, [L, hidden].
	mix, collapsed kernel.Tensor
}

// Arrange takes the tensors of a pass of the main layers, or of the drafting block, from an arena.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if p.Rows > w.streams.mem.Rows && p.Pass != plan.PassBlock { // a block pass stores no rows for later passes
		return nil, fmt.Errorf("v4: workspace holds %d rows, pass has %d", w.streams.mem.Rows, p.Rows)
	}
	// Memory for at least one state must exist, also for passes that are arranged before the first sequence exists.
	if err := m.Reserve(1); err != nil {
		return nil, err
	}
	if p.Pass == plan.PassBlock {
		return w.arrangeBlock(p, cfg, a)
	}
	if p.Pass != plan.PassTarget {
		return w.arrangeDraft(p, cfg, a)
	}
	s := &target{streams: w.streams.mem.Slice(0, p.Rows)}
	s.begin(w, p, cfg, a)
	s.sub = nn.TakeSublayer(a, m.Dev.Activation(), p.Rows, m.Config(), m.config.Hyper)
	s.tapped = m.takeTaps(a, cfg, p.Rows)
	entry, index, err := layouts(cfg)
	if err != nil {
		return nil, err
	}
	s.layout = entry.Kind()
	if s.attn, err = m.attn.Arrange(p, s.in, a, dual.Layouts{Entry: entry.Kind(), Index: index.Kind()}); err != nil {
		return nil, err
	}
	a.Reset(s.attn.Kept)
	s.ffn = m.layers[0].ffn.arrange(a, m.Dev.Activation(), p.Rows, m.config.FFN.TopK)
	a.Reset(s.attn.Kept)
	s.finish(a)
	return s, nil
}

// begin takes the inputs and outputs of a pass from the arena.
func (s *pass) begin(work *workspace, p *plan.Plan, cfg *plan.Config, a *kernel.Arena) {
	m := work.m
	c := m.config
	*s = pass{m: m, work: work, list: m.List, plan: p, in: attn.TakeInputs(p, a)}
	w := model.Widths{Vocab: c.Vocab, Hidden: c.Hyper.Streams * c.Hidden}
	if p.Recorded > 0 || p.Replayed > 0 {
		w.Choices = cfg.Model.Choices()
	}
	s.out, s.ids = model.TakeOutputs(p, a, s.in, m.Dev.Activation(), w), s.in.Array(plan.TokenIDs)
	s.choices = model.NewChoices(p, s.in, s.out, w.Choices)
	s.choices.Count(m.Tally, s.in.Array(plan.WindowLengths))
}

// finish takes the tensors of the head from the arena.
func (s *pass) finish(a *kernel.Arena) {
	c, act := s.m.config, s.m.Dev.Activation()
	s.head = model.TakeHead(s.plan, a, s.in, s.out, model.HeadShape{Activation: act, Width: c.Hyper.Streams * c.Hidden,
		Ranks: s.m.Ranks.Count()})
	s.mix, s.collapsed = a.Take(kernel.F32, s.plan.Logits, c.Hyper.Streams), a.Take(act, s.plan.Logits, c.Hidden)
}

func (s *pass) Inputs() kernel.Tensor { return s.in.Block }

func (s *pass) Outputs() *model.Outputs { return s.out }

// logits combines the streams of the output rows, normalises the result and multiplies it by the head.
func (s *pass) logits(streams kernel.Tensor, last *nn.Site, norm kernel.Tensor) {
	s.list.At("head", -1)
	s.collapse(s.collapsed, streams, last)
	s.list.Add(kernel.NormArgs{Out: s.collapsed, X: s.collapsed, Weight: norm, Eps: s.m.config.RMSEps})
	s.head.Logits(s.list, s.collapsed, s.m.head)
}

// collapse writes the combined streams of the output rows to out [L, hidden].
func (s *pass) collapse(out, streams kernel.Tensor, last *nn.Site) {
	c := s.m.config
	picked := s.head.Pick(s.list, streams)
	s.list.Add(kernel.MultiplyArgs{Out: s.mix, X: picked, W: last.Fn})
	s.list.Add(kernel.HyperHeadArgs{Out: out, X: picked, Mix: s.mix, Base: last.Base, Scale: last.Scale,
		Streams: c.Hyper.Streams, NormEps: c.RMSEps, Eps: c.Hyper.Eps})
}

// embed writes the embeddings of the rows' tokens to the streams.
func (s *pass) embed(streams kernel.Tensor) {
	m, h := s.m, s.m.config.Hidden
	s.list.At("embedding", -1)
	for i := range m.config.Hyper.Streams {
		s.list.Add(kernel.EmbedArgs{Out: streams.Columns(i*h, (i+1)*h), Table: m.embed, IDs: s.ids,
			Part: m.Ranks.Part(m.config.Vocab)})
	}
	s.list.Add(kernel.AllReduceArgs{X: streams})
}

// target holds the tensors of a pass through the main layers.
type target struct {
	pass
	layout  layout.Kind // byte layout of the entries in the cache
	attn    *dual.Pass
	streams kernel.Tensor // [T, streams*hidden]: residual streams
	tapped  kernel.Tensor // [T, taps*hidden]: hidden states that the drafting stages read
	batch   dual.Batch
}

// Prepare checks the states and fills the input block.
func (s *target) Prepare(in *model.Input, words []int32) error {
	s.work.streams.rows = 0
	if err := s.prepare(in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("v4: forward: %w", err)
	}
	return nil
}

func (s *target) prepare(in *model.Input, block attn.Block) error {
	if len(s.m.caches) == 0 {
		return fmt.Errorf("the model has no cache; call Allocate first")
	}
	if have := s.m.caches[0].Window.Layout; have != s.layout {
		return plan.ErrLayout(s.layout.String(), have.String())
	}
	if err := in.Batch.CheckPages(s.m.pages); err != nil {
		return err
	}
	states, err := s.m.AllKept(s.batch.States[:0], in, true)
	if err != nil {
		return err
	}
	s.batch = dual.Batch{Batch: &in.Batch, Windows: in.Windows, Pages: s.m.caches[0].Window.Pages(), States: states}
	if err := s.attn.Prepare(&s.batch, block); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), s.m.config.Vocab); err != nil {
		return err
	}
	if err := in.FillChoices(block); err != nil {
		return err
	}
	if err := block.FillLogits(&in.Batch); err != nil {
		return err
	}
	for r, st := range states {
		if st != nil { // nil for padding
			st.Begin(len(in.Tokens[r]))
		}
	}
	return nil
}

// Program returns the operations of the embedding, every layer and the head.
func (s *target) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

func (s *target) build() (kernel.Program, error) {
	m := s.m
	s.embed(s.streams)
	s.attn.Begin()
	streams := kernel.HyperPreArgs{X: s.streams}
	for i := range m.layers {
		l := &m.layers[i]
		s.list.At("attention", i)
		s.sub.Run(s.list, &l.attnSite, l.attnNorm, streams, func(out, x kernel.Tensor) {
			s.attn.Layer(i, l.attn, m.caches[i], out, x, s.choices.Tap(i))
		})
		s.list.At("feed-forward", i)
		s.sub.Run(s.list, &l.ffnSite, l.ffnNorm, streams, func(out, x kernel.Tensor) {
			m.feedForward(&l.ffn, &s.ffn, out, x, s.ids, s.plan.PromptRows(), s.choices.ExpertTap(i))
		})
		s.choices.KeepHidden(s.list, i, s.streams)
		s.tap(i)
	}
	s.context()
	if s.plan.Logits > 0 {
		s.logits(s.streams, &m.last, m.norm)
	}
	return s.list.Compile()
}

// Ended makes the hidden states of this pass valid as inputs of drafting passes, unless the pass failed.
func (s *target) Ended(err error) {
	if err == nil {
		s.work.streams.rows = s.plan.Rows
	}
}
