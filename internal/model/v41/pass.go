package v41

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

// pass holds the tensors of a pass through the main layers. Attention, feed-forward blocks and head run one after
// another and use the same memory.
type pass struct {
	m    *Model
	list *kernel.Builder // builder of the list of operations
	plan *plan.Plan
	made model.Compiled

	in  attn.Inputs
	out *model.Outputs

	choices model.Choices

	ids     kernel.Tensor // i32 [T, 1]: tokens of the rows
	rows    kernel.Tensor // i32 [T, columns of all tables]: table rows of the tokens
	layout  layout.Kind   // byte layout of the entries in the cache
	attn    *dual.SharedPass
	streams kernel.Tensor // [T, streams*hidden]: residual streams
	carried kernel.Tensor // f32 [T, streams]: coefficients with which the next sublayer sums up the streams
	sub     nn.Sublayer
	found   found
	ffn     nn.RootSpace
	head    model.Head
	tapped  kernel.Tensor // [T, taps*hidden]: hidden states that drafting stages read; not given without drafts
	// mix holds the coefficients of the streams of the output rows, f32 [L, streams]; collapsed holds the combined
	// rows, [L, hidden].
	mix, collapsed kernel.Tensor

	batch  dual.Batch
	hashed []attn.Row // rows of the pass whose table rows are computed
}

// found holds the tensors of looking up an n-gram table for the rows of a pass.
type found struct {
	rows kernel.Tensor // [T, columns*dim]: table rows
	kv   kernel.Tensor // [T, (streams+1)*hidden]: products of the table rows with memory.kv
}

// Arrange takes the tensors of a pass from an arena.
func (w *workspace) Arrange(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if p.Rows > w.streams.Rows && p.Pass != plan.PassBlock { // a block pass stores no rows for later passes
		return nil, fmt.Errorf("v41: workspace holds %d rows, pass has %d", w.streams.Rows, p.Rows)
	}
	// Memory for at least one state must exist, also for passes that are arranged before the first sequence exists.
	if err := m.Reserve(1); err != nil {
		return nil, err
	}
	entry, index, err := layouts(cfg)
	if err != nil {
		return nil, err
	}
	if p.Pass == plan.PassBlock {
		return m.arrangeBlock(p, cfg, a, windowOf(entry))
	}
	if p.Pass != plan.PassTarget {
		return nil, fmt.Errorf("v41: a pass of kind %v was planned, but the draft head drafts only blocks", p.Pass)
	}
	s := &pass{layout: entry.Kind()}
	s.begin(m, p, cfg, a)
	s.streams, s.rows = w.streams.Slice(0, p.Rows), s.in.Array(plan.TableRows)
	if m.spark != nil && cfg.N > 1 {
		s.tapped = m.spark.TakeTaps(a, m.Dev.Activation(), p.Rows)
	}
	c, act := m.config, m.Dev.Activation()
	n, h := c.Hyper.Streams, c.Hidden
	if s.attn, err = m.attn.ArrangeShared(p, s.in, a, dual.Layouts{Entry: entry.Kind(),
		Index: index.Kind()}); err != nil {
		return nil, err
	}
	a.Reset(s.attn.Kept)
	if e := &c.Engram; len(e.Layers) > 0 {
		s.found = found{rows: a.Take(act, p.Rows, e.Columns()*e.Dim), kv: a.Take(act, p.Rows, (n+1)*h)}
	}
	a.Reset(s.attn.Kept)
	s.ffn = m.layers[0].ffn.Arrange(a, act, p.Rows)
	a.Reset(s.attn.Kept)
	s.finish(a)
	return s, nil
}

// begin takes from the arena inputs, outputs and the tensors between streams and sublayers.
func (s *pass) begin(m *Model, p *plan.Plan, cfg *plan.Config, a *kernel.Arena) {
	c, act := m.config, m.Dev.Activation()
	n, h := c.Hyper.Streams, c.Hidden
	s.m, s.list, s.plan, s.in = m, m.List, p, attn.TakeInputs(p, a)
	width := model.Widths{Vocab: c.Vocab, Hidden: n * h}
	if p.Recorded > 0 || p.Replayed > 0 {
		width.Choices = cfg.Model.Choices()
	}
	s.out = model.TakeOutputs(p, a, s.in, act, width)
	s.ids = s.in.Array(plan.TokenIDs)
	s.choices = model.NewChoices(p, s.in, s.out, width.Choices)
	s.choices.Count(m.Tally, s.in.Array(plan.WindowLengths))
	s.carried = a.Take(kernel.F32, p.Rows, n)
	s.sub = nn.TakeSublayer(a, act, p.Rows, m.Config(), c.Hyper)
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

// Ended does nothing, because no later pass reads data of this pass.
func (*pass) Ended(error) {}

// Prepare checks the states and fills the input block.
func (s *pass) Prepare(in *model.Input, words []int32) error {
	if err := s.prepare(in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("v41: forward: %w", err)
	}
	return nil
}

func (s *pass) prepare(in *model.Input, block attn.Block) error {
	if len(s.m.caches) == 0 {
		return fmt.Errorf("the model has no cache; call Allocate first")
	}
	if have := s.m.entryLayout(); have != s.layout {
		return plan.ErrLayout(s.layout.String(), have.String())
	}
	if err := in.Batch.CheckPages(s.m.pages); err != nil {
		return err
	}
	states, err := s.m.AllKept(s.batch.States[:0], in, true)
	if err != nil {
		return err
	}
	s.batch = dual.Batch{Batch: &in.Batch, Windows: in.Windows, Pages: s.m.caches[0].window.Pages(), States: states}
	if err := s.attn.Prepare(&s.batch, block); err != nil {
		return err
	}
	if err := in.FillTokens(block.Array(plan.TokenIDs), s.m.config.Vocab); err != nil {
		return err
	}
	if err := s.fillRows(in, block.Array(plan.TableRows)); err != nil {
		return err
	}
	if err := s.announce(block.Array(plan.TableRows)); err != nil {
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

// fillRows writes the row numbers in the n-gram tables for every token. They depend on the token and on a few tokens
// before it, of this pass or of earlier passes.
func (s *pass) fillRows(in *model.Input, to []int32) error {
	h := s.m.hash
	if h == nil {
		return nil
	}
	before, tokens := h.Shape().Before(), int64(0)
	s.hashed = s.hashed[:0]
	if err := in.Rows(func(r attn.Row) error {
		if s.batch.States[r.Request] != nil {
			if n := min(r.Position, before) - r.Token; n > 0 && (r.Request >= len(in.Before) ||
				n > len(in.Before[r.Request])) {
				return fmt.Errorf("request %d: the n-grams of position %d need the %d tokens before it, which are "+
					"not given", r.Request, r.Position, min(r.Position, before))
			}
			tokens++
		}
		s.hashed = append(s.hashed, r)
		return nil
	}); err != nil {
		return err
	}
	s.m.read.Add(tokens)
	if len(s.hashed) <= attn.PieceRows {
		s.hash(in, to, s.hashed)
		return nil
	}
	attn.InPieces(0, len(s.hashed), func(first, last int) { s.hash(in, to, s.hashed[first:last]) })
	return nil
}

// hash writes the row numbers of the given rows of the pass, for whose requests all tokens are given.
func (s *pass) hash(in *model.Input, to []int32, rows []attn.Row) {
	h := s.m.hash
	words, before := h.Shape().Words(), h.Shape().Before()
	var gram [16]int32
	for _, r := range rows {
		row := to[r.Index*words : (r.Index+1)*words]
		if s.batch.States[r.Request] == nil { // padding
			clear(row)
			continue
		}
		n := min(r.Position, before)
		for i := range n { // the token at Position-n+i
			if at := r.Token - n + i; at >= 0 {
				gram[i] = in.Tokens[r.Request][at]
			} else {
				gram[i] = in.Before[r.Request][len(in.Before[r.Request])+at]
			}
		}
		h.Rows(row, gram[:n], in.Tokens[r.Request][r.Token])
	}
}

// Program returns the operations of the embedding, every layer and the head.
func (s *pass) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

// embed writes the embeddings of the rows' tokens to the streams.
func (s *pass) embed() {
	m, h := s.m, s.m.config.Hidden
	s.list.At("embedding", -1)
	for i := range m.config.Hyper.Streams {
		s.list.Add(kernel.EmbedArgs{Out: s.streams.Columns(i*h, (i+1)*h), Table: m.embed, IDs: s.ids,
			Part: m.Ranks.Part(m.config.Vocab)})
	}
	s.list.Add(kernel.AllReduceArgs{X: s.streams})
}

func (s *pass) build() (kernel.Program, error) {
	m := s.m
	s.embed()
	s.attn.Begin()
	for i := range m.layers {
		l := &m.layers[i]
		if l.engram != nil {
			s.list.At("n-gram table", i)
			s.remember(l.engram)
		}
		if s.tapped.Given() {
			m.spark.Tap(s.list, i, s.tapped, s.streams, s.sub.Mix.Columns(0, m.config.Hyper.Streams))
		}
		s.list.At("attention", i)
		s.sublayer(&l.attnSite, l.attnNorm, i == 0, func(out, x kernel.Tensor) {
			s.attn.Layer(i, m.shared(i), out, x, s.choices.Tap(i))
		})
		s.list.At("feed-forward", i)
		s.sublayer(&l.ffnSite, l.ffnNorm, false, func(out, x kernel.Tensor) {
			tap := s.choices.ExpertTap(i)
			l.ffn.Add(s.list, &s.ffn, out, x, s.plan.PromptRows(), &tap)
		})
		s.choices.KeepHidden(s.list, i, s.streams)
	}
	if s.tapped.Given() {
		m.spark.Context(s.list, s.sub.X, s.tapped)
		for k := range m.spark.stages {
			s.attn.Context(m.spark.stages[k].attn, m.spark.Windows[k], s.sub.X)
		}
	}
	if s.plan.Logits > 0 {
		s.list.At("head", -1)
		s.collapse(s.collapsed)
		s.list.Add(kernel.NormArgs{Out: s.collapsed, X: s.collapsed, Weight: m.norm, Eps: m.config.RMSEps})
		s.head.Logits(s.list, s.collapsed, m.head)
	}
	return s.list.Compile()
}

// remember adds the values of an n-gram table to the streams of the pass.
func (s *pass) remember(e *memory) {
	s.list.Add(s.lookUp(e))
	s.list.Add(kernel.MultiplyArgs{Out: s.found.kv, X: s.found.rows, W: e.kv})
	s.list.Add(kernel.EngramArgs{X: s.streams, KV: s.found.kv, Weight: e.weight, Eps: s.m.config.RMSEps})
}

// lookUp returns the operation that reads the rows of an n-gram table.
func (s *pass) lookUp(e *memory) kernel.TableArgs {
	return kernel.TableArgs{Out: s.found.rows, Table: e.table,
		IDs: s.rows.Columns(e.first, e.first+s.m.config.Engram.Columns())}
}

// sublayer runs a sublayer. Its input is computed with the coefficients of the previous sublayer; the first sublayer
// reads the first stream.
func (s *pass) sublayer(at *nn.Site, norm kernel.Tensor, first bool, run func(out, x kernel.Tensor)) {
	pre := kernel.HyperPreArgs{X: s.streams, Carried: s.carried, Pre: s.carried}
	if first {
		pre.Carried = kernel.Tensor{}
	}
	s.sub.Run(s.list, at, norm, pre, run)
}

// collapse writes the combined streams of the output rows to out [L, hidden], with the last coefficients.
func (s *pass) collapse(out kernel.Tensor) {
	picked := s.head.Pick(s.list, s.streams)
	s.list.Add(kernel.TakeArgs{Out: s.mix, X: s.carried, Rows: s.in.Array(plan.LogitRows)})
	s.list.Add(kernel.HyperSumArgs{Out: out, X: picked, Weights: s.mix})
}
