package v4

import (
	"fmt"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// choose fills a launch's part of the selection by the indexer path the plan names. Selected are groups, counted in the sequence.
func (m *Model) choose(s *segment, l *launch, x *indexer, c cache, in query) error {
	st := &m.step
	switch s.plan.Indexer.Kind {
	case plan.IndexerKOnlyWithIndices:
		// Every visible group is kept: selection looks at no scores.
		return m.dev.Select(kernel.SelectArgs{Out: st.selected.Slice(l.first, l.last), Lens: st.groups.Slice(l.first, l.last)})
	case plan.IndexerRagged:
		keys, err := m.gatherKeys(l, c)
		if err != nil {
			return err
		}
		return m.scoreChunks(s, l, x, in, kernel.ScoreArgs{Keys: keys})
	case plan.IndexerPagedSplit:
		return m.scoreChunks(s, l, x, in, kernel.ScoreArgs{Keys: c.index, Table: st.table})
	case plan.IndexerPagedNative:
		return m.scoreChunks(s, l, x, in, kernel.ScoreArgs{Keys: c.index, Table: st.table, NextN: s.plan.Indexer.NextN})
	}
	return fmt.Errorf("indexer path %v is not one this family runs", s.plan.Indexer.Kind)
}

// gatherKeys copies the indexer keys of a launch's requests into one contiguous page. Keys lie where their groups' entries lie.
func (m *Model) gatherKeys(l *launch, c cache) (kernel.Pool, error) {
	keys, err := layout.IndexOf(c.index.Layout)
	if err != nil {
		return kernel.Pool{}, err
	}
	n := l.groups.Rows
	t, err := m.buf.keys.Take(kernel.U8, 1, keys.PageBytes(n))
	if err != nil {
		return kernel.Pool{}, err
	}
	out := kernel.Pool{Mem: t, Layout: c.index.Layout, PageTokens: n}
	return out, m.dev.GatherIndex(kernel.IndexGatherArgs{Out: out, Slots: l.groups, Pool: c.index})
}

// scoreChunks scores and selects in chunks of rows, so that the score matrix stays within the plan's bound.
func (m *Model) scoreChunks(s *segment, l *launch, x *indexer, in query, args kernel.ScoreArgs) error {
	chunk := s.plan.Indexer.RowsPerChunk
	if chunk <= 0 {
		return fmt.Errorf("the plan scores %d rows at a time", chunk)
	}
	for first := l.first; first < l.last; first += chunk {
		if err := m.scoreRows(l.longest, x, in, args, first, min(first+chunk, l.last)); err != nil {
			return err
		}
	}
	return nil
}

func (m *Model) scoreRows(width int, x *indexer, in query, args kernel.ScoreArgs, first, last int) error {
	st := &m.step
	out, lens := st.selected.Slice(first, last), st.groups.Slice(first, last)
	if width <= m.config.Indexer.TopK {
		return m.dev.Select(kernel.SelectArgs{Out: out, Lens: lens})
	}
	scores, err := m.buf.scores.Take(kernel.F32, last-first, width)
	if err != nil {
		return err
	}
	if args.Q, args.W, err = m.queries(x, args.Keys.Layout, in, first, last); err != nil {
		return err
	}
	args.Out, args.Lens, args.Heads, args.SkipUpTo = scores, lens, m.config.Indexer.Heads, m.config.Indexer.TopK
	if args.Table.Given() {
		args.TableRow = st.request.Slice(first, last)
	} else {
		args.Start = st.groupStart.Slice(first, last)
	}
	if err := m.dev.Scores(args); err != nil {
		return err
	}
	return m.dev.Select(kernel.SelectArgs{Out: out, Scores: scores, Lens: lens})
}

// queries prepares the indexer queries and head weights of rows first to last.
func (m *Model) queries(x *indexer, keys layout.Kind, in query, first, last int) (q, weights kernel.Tensor, err error) {
	n, heads := last-first, m.config.Indexer.Heads
	raw, err := m.buf.iq.Take(m.dev.Activation(), n, heads*layout.IndexDim)
	if err != nil {
		return
	}
	if err = m.dev.Multiply(kernel.MultiplyArgs{Out: raw, X: in.qr.Slice(first, last), W: x.q}); err != nil {
		return
	}
	projected, err := m.buf.projected.Take(kernel.F32, n, heads)
	if err != nil {
		return
	}
	if err = m.dev.Multiply(kernel.MultiplyArgs{Out: projected, X: in.x.Slice(first, last), W: x.weights}); err != nil {
		return
	}
	kind := kernel.F32
	if keys == layout.IndexPage132 {
		kind = kernel.E4M3
	}
	if q, err = m.buf.iq8.Take(kind, n, heads*layout.IndexDim); err != nil {
		return
	}
	if weights, err = m.buf.iw.Take(kernel.F32, n, heads); err != nil {
		return
	}
	err = m.dev.IndexQuery(kernel.IndexQueryArgs{Out: q, W: weights, Q: raw, Weights: projected, Angles: in.angles.Slice(first, last), Heads: heads,
		Offset: layout.IndexDim - layout.RopeDim, Pairing: kernel.Interleaved, Hadamard: hadamard(keys), Scales: num.ScaleF32})
	return
}
