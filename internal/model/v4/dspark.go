package v4

import (
	"fmt"
	"math"

	"sparrow/internal/attn"
	"sparrow/internal/attn/dual"
	"sparrow/internal/model"
	"sparrow/internal/model/nn"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// sparkHead is a DSpark draft head (dspark spec, 3). With X_l the residual streams after layer l of the target, and
// l_1, l_2, .. the tapped layers:
//
//	f(p) = mean over streams of X_l1, of X_l2, ..       side by side
//	u(p) = main_norm(main_proj · f(p))
//	c_k(p) = the window entry that stage k makes of u(p)
//
// Passes of the target compute these for all of their rows and store c_k with their own window entries. A block of B
// rows begins with the token that was sampled last, at position L, and noise after it. It runs through the stages,
// whose rows see c_k of the window before L and each other, and is collapsed to h_i. Then, with x_0 the token at L:
//
//	e_i     = markov_w1[x_i]
//	l_i     = head · norm(h_i) + markov_w2 · e_i          logits of x_{i+1}, which is drafted
//	gamma_i = confidence · (h_i, e_i)                     how likely it is accepted, if x_i was
type sparkHead struct {
	stages     []layer
	main       kernel.Matrix // [hidden, taps*hidden]
	mainNorm   kernel.Tensor
	last       site
	norm       kernel.Tensor
	before     kernel.Matrix // markov_w1 [vocabulary, rank]: a row for the token before
	after      kernel.Matrix // markov_w2 [vocabulary, rank]: a row for each token after it
	confidence kernel.Matrix // [1, hidden+rank]
	mean       meanSite

	windows []kernel.Pool // entries of each stage, with the pages of window entries; none without drafts
}

// meanSite gives all streams the same weight, as operands of kernel.HyperHeadArgs: with a scale of 0 the values of a
// row have no effect, and sigmoid(base) + eps is 1/streams.
type meanSite struct{ base, scale kernel.Tensor }

func newMeanSite(dev kernel.Device, streams int, eps float32) (m meanSite, err error) {
	if m.base, err = kernel.New(dev, kernel.F32, 1, streams); err != nil {
		return m, err
	}
	if m.scale, err = kernel.New(dev, kernel.F32, 1, 1); err != nil {
		return m, err
	}
	part := 1/float64(streams) - float64(eps)
	base := make([]float32, streams)
	for i := range base {
		base[i] = float32(math.Log(part / (1 - part)))
	}
	if err := kernel.WriteF32(dev, m.base, base); err != nil {
		return m, err
	}
	return m, kernel.WriteF32(dev, m.scale, []float32{0})
}

// loadStages reads a DSpark head where the checkpoint has one.
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
	s.main = l.Matrix(draftPrefix+"main_proj.weight", c.Hidden, len(d.Taps)*c.Hidden)
	s.mainNorm = l.Vector(draftPrefix+"main_norm.weight", c.Hidden)
	s.last = loadSite(c, l, last("hc_head_fn"), last("hc_head_base"), last("hc_head_scale"), c.Hyper.Streams, 1)
	s.norm = l.Vector(last("norm.weight"), c.Hidden)
	l.Whole(func() { s.before = l.Table(last("markov_head.markov_w1.weight"), c.Vocab, d.Rank) })
	s.after = l.Matrix(last("markov_head.markov_w2.weight"), c.Vocab, d.Rank)
	s.confidence = l.Matrix(last("confidence_head.proj.weight"), 1, c.Hidden+d.Rank)
	m.spark = s
}

// use makes the pools of the stages, or none without drafts.
func (s *sparkHead) use(dev kernel.Device, entry layout.V4, page, windows int) error {
	for range s.stages {
		p, err := model.NewPool(dev, entry.Kind(), entry.PageBytes(page), windows, page)
		if err != nil {
			return err
		}
		s.windows = append(s.windows, p)
	}
	return nil
}

// free frees the pools of the stages.
func (s *sparkHead) free(dev kernel.Device) {
	for _, p := range s.windows {
		dev.Free(p.Mem.Buf)
	}
	s.windows = nil
}

// taps is the memory of the tapped hidden states in a pass of the target.
type taps struct {
	f kernel.Tensor // [T, taps*hidden]
}

func (m *Model) takeTaps(a *kernel.Arena, cfg *plan.Config, rows int) (t taps) {
	if m.spark != nil && cfg.N > 1 {
		t.f = a.Take(m.dev.Activation(), rows, len(m.config.DSpark.Taps)*m.config.Hidden)
	}
	return t
}

// tap keeps the mean of the streams after a layer, where it is tapped.
func (s *target) tap(i int) {
	c := s.m.config
	if !s.taps.f.Given() {
		return
	}
	for j, l := range c.DSpark.Taps {
		if l == i {
			s.list.At("features of the drafting stages", i)
			mean := s.m.spark.mean
			s.list.Add(kernel.HyperHeadArgs{Out: s.taps.f.Columns(j*c.Hidden, (j+1)*c.Hidden), X: s.streams,
				Mix: s.sub.mix.Columns(0, c.Hyper.Streams), Base: mean.base, Scale: mean.scale,
				Streams: c.Hyper.Streams, NormEps: c.RMSEps, Eps: c.Hyper.Eps})
		}
	}
}

// context stores the data that the drafting stages need for the pass's rows.
func (s *target) context() {
	if !s.taps.f.Given() {
		return
	}
	m, head := s.m, s.m.spark
	s.list.At("context of the drafting stages", -1)
	u := s.sub.x
	s.list.Add(kernel.MultiplyArgs{Out: u, X: s.taps.f, W: head.main})
	s.list.Add(kernel.NormArgs{Out: u, X: u, Weight: head.mainNorm, Eps: m.config.RMSEps})
	for k := range head.stages {
		s.attn.Context(head.stages[k].attn, head.windows[k], u)
	}
}

// block is a pass of the drafting stages: a block of rows for each request.
type block struct {
	pass
	attn    *dual.BlockPass
	streams kernel.Tensor // [R, streams*hidden]
	joined  kernel.Tensor // [L, hidden+rank]: collapsed rows, and of each the Markov head's row of the token before it
	anchors kernel.Tensor // i32 [requests, 1]: the tokens that the blocks begin with
	batch   dual.BlockBatch
}

func (w *workspace) arrangeBlock(p *plan.Plan, cfg *plan.Config, a *kernel.Arena) (model.Pass, error) {
	m := w.m
	if err := m.DraftHead(); err != nil {
		return nil, err
	}
	c, act := m.config, m.dev.Activation()
	if n := c.DSpark.Block; m.spark == nil || p.Rows%n != 0 || p.Logits != p.Rows {
		return nil, fmt.Errorf("v4: draft: the pass has %d rows, %d with logits; want whole blocks of %d rows, all "+
			"with logits", p.Rows, p.Logits, n)
	}
	entry, _, err := layouts(cfg)
	if err != nil {
		return nil, err
	}
	s := &block{}
	s.begin(w, p, cfg, a)
	s.streams = a.Take(act, p.Rows, c.Hyper.Streams*c.Hidden)
	s.sub = m.takeSublayer(a, p.Rows)
	s.attn = m.attn.ArrangeBlock(p, s.in, a, entry)
	a.Reset(s.attn.Kept)
	s.ffn = m.spark.stages[0].ffn.arrange(a, act, p.Rows, c.FFN.TopK)
	a.Reset(s.attn.Kept)
	s.finish(a)
	s.joined = a.Take(act, p.Logits, c.Hidden+c.DSpark.Rank)
	s.anchors = a.Take(kernel.I32, p.Rows/c.DSpark.Block, 1)
	return s, nil
}

// Prepare fills the input block. Wanted rows are ordered by their position in the block, so that rows of the same
// position, whose tokens are drafted together, are adjacent.
func (s *block) Prepare(in *model.Input, words []int32) error {
	if err := s.prepare(in, attn.NewBlock(s.plan, words)); err != nil {
		return fmt.Errorf("v4: draft: %w", err)
	}
	return nil
}

func (s *block) prepare(in *model.Input, to attn.Block) error {
	m := s.m
	if len(m.spark.windows) == 0 {
		return fmt.Errorf("the drafting stages have no cache; allocate with a configuration that verifies more than " +
			"one row")
	}
	if err := to.FillBlocks(&in.Batch); err != nil {
		return err
	}
	tokens, logits, requests := to.Array(plan.TokenIDs), to.Array(plan.LogitRows), s.anchors.Rows
	s.batch = dual.BlockBatch{Batch: &in.Batch, Windows: in.Windows, Pages: m.spark.windows[0].Pages()}
	return s.attn.Prepare(&s.batch, to, func(row, request, place int) error {
		tokens[row], logits[place*requests+request] = int32(m.config.DSpark.Noise), int32(row)
		if place > 0 {
			return nil
		}
		if len(in.Tokens[request]) != 1 && !in.Batch.Batch.Requests[request].Padding {
			return fmt.Errorf("the request has %d tokens, want one, with which the block begins",
				len(in.Tokens[request]))
		}
		tokens[row] = in.Tokens[request][0]
		return attn.CheckToken(tokens[row], m.config.Vocab)
	})
}

// Program returns the stages and the heads.
func (s *block) Program() (kernel.Program, error) { return s.made.Program(s.m.moved(), s.build) }

func (s *block) build() (kernel.Program, error) {
	m, c, head := s.m, s.m.config, s.m.spark
	s.embed(s.streams)
	s.attn.Begin()
	for k := range head.stages {
		l := &head.stages[k]
		s.list.At("attention of a drafting stage", k)
		m.sublayer(&s.sub, &l.attnSite, l.attnNorm, s.streams, func(out, x kernel.Tensor) {
			s.attn.Attend(l.attn, head.windows[k], out, x)
		})
		s.list.At("feed-forward of a drafting stage", k)
		m.sublayer(&s.sub, &l.ffnSite, l.ffnNorm, s.streams, func(out, x kernel.Tensor) {
			m.feedForward(&l.ffn, &s.ffn, out, x, s.ids, 0, s.choices.ExpertTap(c.Layers+k))
		})
	}
	s.list.At("head of the drafting stages", -1)
	h := s.joined.Columns(0, c.Hidden)
	s.collapse(h, s.streams, &head.last)
	s.list.Add(kernel.NormArgs{Out: s.collapsed, X: h, Weight: head.norm, Eps: c.RMSEps})
	s.head.Multiply(s.list, s.collapsed, m.head)
	s.chain(h)
	return s.list.Compile()
}

// chain drafts the tokens of all blocks, position after position: each depends on the previous token.
func (s *block) chain(h kernel.Tensor) {
	c, head, n := s.m.config, s.m.spark, s.anchors.Rows
	s.list.At("Markov head", -1)
	s.list.Add(kernel.TakeArgs{Out: s.anchors, X: s.ids, Rows: s.head.Rows().Slice(0, n)})
	before := s.anchors
	for i := range c.DSpark.Block {
		e := s.joined.Columns(h.Cols, s.joined.Cols).Slice(i*n, (i+1)*n)
		s.list.Add(kernel.EmbedArgs{Out: e, Table: head.before, IDs: before})
		s.list.Add(kernel.MultiplyArgs{Out: s.head.Of(i*n, (i+1)*n), X: e, W: head.after, Accumulate: true})
		before = s.head.Choose(s.list, i*n, (i+1)*n)
	}
	s.list.At("confidence head", -1)
	s.list.Add(kernel.MultiplyArgs{Out: s.out.Confidence, X: s.joined, W: head.confidence})
}

// Ended has nothing to note: a block leaves nothing on the device.
func (s *block) Ended(error) {}
