package plan

import "slices"

// Build plans one batch. It is pure: equal arguments give equal plans, independently of earlier calls, and neither
// argument is modified.
//
// It decides in this order: mode, kernel for prefill or decode, form of attention, automatic kernel, conversion, index
// transform, indexer path, launches, key.
func Build(cfg Config, b Batch) (*Plan, error) {
	w, err := NewBuilder(&cfg, &sparrowCatalogue, &b)
	if err != nil || b.Mode == ModeIdle {
		return w.Plan(), err
	}
	p := w.plan
	if p.Shape, err = new(Shaper).shape(&cfg, &b); err != nil {
		return nil, err
	}
	p.Recorded, p.Replayed, p.Draws = p.Shape.Recorded, p.Shape.Replayed, p.Shape.Draws
	if p.Recorded > 0 {
		p.Record = b.Record
	}
	if p.Replayed > 0 {
		p.Replay = b.Replay
	}
	if err := w.segmented(); err != nil {
		return nil, err
	}
	w.total()
	for i := range p.Segments {
		p.JointQueries = p.JointQueries || p.Segments[i].Scores() && p.Rows <= JointRows(cfg.Hardware.Arch)
	}
	if !p.Selects() { // every row attends to every key
		p.Record.Selections, p.Record.Scores, p.Replay.Selections = false, false, false
	}
	w.shares()
	w.inputs()
	return w.Plan(), nil
}

// JointRows returns the maximum number of rows of a pass whose indexer queries are computed together with the layer's
// other matrix products. Up to this many rows, the time is bound by reading the weights.
func JointRows(a Arch) int {
	if a == CPU {
		return 32
	}
	return 512
}

// Builder holds the state of one call of Build.
type Builder struct {
	cfg  *Config
	cat  *Catalogue
	b    *Batch
	plan *Plan
	// Whole means that rows are not cut into launches: more rows than a kernel's limit are an error.
	Whole bool
}

// NewBuilder checks a batch and begins its plan. For an idle batch, the plan is then complete.
func NewBuilder(cfg *Config, cat *Catalogue, b *Batch) (*Builder, error) {
	if err := b.check(cfg); err != nil {
		return nil, err
	}
	p := &Plan{Mode: b.Mode, Graph: b.Graph, Runnable: cfg.Runnable, Collectives: cfg.joins(b.Mode), Pass: b.Pass,
		Requests: len(b.Requests)}
	w := &Builder{cfg: cfg, cat: cat, b: b, plan: p}
	if b.Mode == ModeIdle {
		p.Reasons = []Reason{{"dispatch 2", "an idle rank runs no kernels, and takes part in collective operations"}}
		return w, nil
	}
	var err error
	if p.TablePages, err = b.tablePages(cfg); err != nil {
		return nil, err
	}
	for i := range b.Requests {
		p.Logits += b.Requests[i].Logits
		if !b.Requests[i].Best {
			p.WholeLogits += b.Requests[i].Logits
		}
	}
	return w, nil
}

// joins reports whether ranks combine partial results in batches of a mode. They do with several ranks, on an idle
// rank, and in all plans of the public catalogue, which do not state the number of ranks.
func (c *Config) joins(m Mode) bool { return !c.Runnable || m == ModeIdle || c.Model.Ranks > 1 }

// Finish sets the segments of the plan.
func (w *Builder) Finish(segments ...Segment) *Plan {
	w.plan.Segments = segments
	w.total()
	return w.Plan()
}

// total sets the first row of each segment and sums up their counts.
func (w *Builder) total() {
	p := w.plan
	for i := range p.Segments {
		s := &p.Segments[i]
		s.FirstRow = p.Rows
		p.Rows += s.Rows
		p.TransientBytes = max(p.TransientBytes, s.TransientBytes)
	}
}

// Plan returns the finished plan, with its key; nil for a nil builder.
func (w *Builder) Plan() *Plan {
	if w == nil {
		return nil
	}
	w.plan.Key = keyOf(w.cfg, w.plan)
	return w.plan
}

// Span appends tokens from..to of request i to the segment.
func (s *Segment) Span(i, from, to int) {
	s.Spans = append(s.Spans, Span{Request: i, From: from, To: to, FirstRow: s.Rows})
	s.Rows += to - from
}

// Sparse sets the fields of a sparse segment that follow from its kernel; prefix is true if any key must come from the
// cache.
func (w *Builder) Sparse(s *Segment, k Kernel, prefix bool) {
	s.Kernel = k
	shapeKernel(w.cfg, w.cat.Entry(k), s, prefix)
}

// Dense sets the fields of a dense segment; gather is the conversion by which cached keys are read.
func (w *Builder) Dense(s *Segment, k Kernel, gather Convert) {
	s.Form, s.Kernel, s.Convert, s.Transform = FormDenseMHA, k, gather, TransformNone
	setHeads(w.cfg, s, w.cat.Entry(k))
}

// Pad sets the number of rows that kernels process for a segment: decode, verify and draft segments are padded by whole
// requests, prompts by rows.
func (w *Builder) Pad(s *Segment) error {
	s.Requests = len(s.Spans)
	s.KernelRows = max(s.Rows, w.b.PaddedRows)
	if s.NextN > 0 && s.KernelRows > s.Rows {
		if s.KernelRows%s.NextN != 0 {
			return ErrLengths("%d padded rows, which is not a multiple of the %d rows of a request", s.KernelRows,
				s.NextN)
		}
		s.Requests = s.KernelRows / s.NextN
	}
	return nil
}

// Size computes scores, launches and bytes of a padded segment whose form, kernel and indexer path are set.
func (w *Builder) Size(s *Segment) error {
	s.Layout = w.cfg.Layout
	w.sizeScores(s)
	if err := w.slice(s); err != nil {
		return err
	}
	s.Reasons = slices.Clip(s.Reasons)
	return nil
}

// spanKeys returns the number of keys of the last row of a span.
func spanKeys(cfg *Config, b *Batch, sp *Span) int {
	rows := b.Rows(cfg, sp.Request)
	return max(0, b.firstPosition(sp.Request, rows)+sp.To)
}
