package plan

import "slices"

// Build plans one batch. It is pure: equal arguments give equal plans whatever
// was planned before, and neither argument is written to.
//
// The order of decisions is mode, kernel of the phase, form, automatic kernel,
// conversion, transform, indexer, slicing, key.
func Build(cfg Config, b Batch) (*Plan, error) {
	if err := b.check(&cfg); err != nil {
		return nil, err
	}
	p := &Plan{Mode: b.Mode, Graph: b.Graph, Runnable: cfg.Runnable, Collectives: true, Pass: b.Pass,
		Requests: len(b.Requests)}
	if b.Mode == ModeIdle {
		p.Reasons = []Reason{{"dispatch 2", "an idle rank runs no kernels and joins the collectives"}}
		p.Key = keyOf(&cfg, p)
		return p, nil
	}
	var err error
	if p.Shape, err = new(Shaper).shape(&cfg, &b); err != nil {
		return nil, err
	}
	p.TablePages = p.Shape.TablePages
	p.Recorded, p.Replayed, p.Draws = p.Shape.Recorded, p.Shape.Replayed, p.Shape.Draws
	if p.Recorded > 0 {
		p.Record = b.Record
	}
	if p.Replayed > 0 {
		p.Replay = b.Replay
	}
	for i := range b.Requests {
		p.Logits += b.Requests[i].Logits
		if !b.Requests[i].Best {
			p.WholeLogits += b.Requests[i].Logits
		}
	}
	w := &builder{cfg: &cfg, b: &b, plan: p}
	switch cfg.Catalog {
	case CatalogPublic:
		err = w.uniform()
	case CatalogSparrow:
		err = w.segmented()
	}
	if err != nil {
		return nil, err
	}
	for i := range p.Segments {
		s := &p.Segments[i]
		s.FirstRow = p.Rows
		p.Rows += s.Rows
		p.TransientBytes = max(p.TransientBytes, s.TransientBytes)
		p.JointQueries = p.JointQueries || s.Scores()
	}
	if !p.Selects() { // every row attends to every key
		p.Record.Selections, p.Record.Scores, p.Replay.Selections = false, false, false
	}
	if cfg.Catalog == CatalogSparrow {
		p.JointQueries = p.JointQueries && p.Rows <= JointRows(cfg.Hardware.Arch)
		w.shares()
		w.inputs()
	}
	p.Key = keyOf(&cfg, p)
	return p, nil
}

// JointRows is the most rows of a pass whose indexer queries are computed with
// the layer's other products. A GPU reads weights far longer than it multiplies
// by them: every decode pass is below its number.
func JointRows(a Arch) int {
	if a == CPU {
		return 32
	}
	return 512
}

// builder carries one call of Build.
type builder struct {
	cfg  *Config
	b    *Batch
	plan *Plan
}

// span appends tokens from..to of request i to the segment.
func (s *Segment) span(i, from, to int) {
	s.Spans = append(s.Spans, Span{Request: i, From: from, To: to, FirstRow: s.Rows})
	s.Rows += to - from
}

// complete takes a segment whose rows, form, kernel and indexer path are set
// and works out sizes: padding, scores, launches, bytes.
func (w *builder) complete(s *Segment) error {
	if err := w.pad(s); err != nil {
		return err
	}
	s.SplitsFixed = w.cfg.SplitsFixed
	if e := catalogueOf(w.cfg.Catalog).entry(s.Kernel); e != nil && e.segments {
		s.SplitKeys = w.cfg.SplitKeys
	}
	s.Layout = w.cfg.Layout
	w.sizeScores(s)
	if err := w.slice(s); err != nil {
		return err
	}
	s.Reasons = slices.Clip(s.Reasons)
	return nil
}

// pad sets the rows kernels see: decode-like batches pad whole requests,
// prompts pad rows, and context parallelism deals rows to ranks.
func (w *builder) pad(s *Segment) error {
	s.Requests = len(s.Spans)
	s.KernelRows = max(s.Rows, w.b.PaddedRows)
	if s.NextN > 0 && s.KernelRows > s.Rows {
		if s.KernelRows%s.NextN != 0 {
			return lengthError("%d padded rows, which is no multiple of the %d rows of a request", s.KernelRows,
				s.NextN)
		}
		s.Requests = s.KernelRows / s.NextN
	}
	if cpActive(w.cfg, w.b, s) {
		s.KernelRows = roundUp(s.KernelRows, w.cfg.CP.Size) / w.cfg.CP.Size
		s.reason("dispatch 15", "context parallelism leaves each rank its share of the rows")
	}
	return nil
}

// cpActive: interleave needs a token per rank, zigzag one long request.
func cpActive(cfg *Config, b *Batch, s *Segment) bool {
	if b.Mode != ModeExtend && b.Mode != ModeMixed {
		return false
	}
	switch cfg.CP.Kind {
	case CPInterleave:
		return s.Rows >= cfg.CP.Size
	case CPZigzag:
		return len(s.Spans) == 1 && s.Rows >= 2*cfg.CP.Size
	case CPNone:
	}
	return false
}

// spanKeys is the number of keys the last row of a span sees.
func (w *builder) spanKeys(sp *Span) int { return spanKeys(w.cfg, w.b, sp) }

func spanKeys(cfg *Config, b *Batch, sp *Span) int {
	rows := b.Rows(cfg, sp.Request)
	return max(0, b.firstPosition(sp.Request, rows)+sp.To)
}
