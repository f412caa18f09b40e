package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// choose fills a launch's part of the step's positions by the indexer path the plan names.
func (a *Attention) choose(s *segment, l *launch, w *IndexWeights, c Cache, in sparseInput) error {
	switch s.plan.Indexer.Kind {
	case plan.IndexerKOnlyWithIndices:
		// Every visible key is kept: selection looks at no scores.
		return a.dev.Select(kernel.SelectArgs{Out: a.step.positions.Slice(l.first, l.last), Lens: a.step.lens.Slice(l.first, l.last)})
	case plan.IndexerRagged:
		keys, err := a.gatherKeys(l, c)
		if err != nil {
			return err
		}
		return a.scoreChunks(s, l, w, in, kernel.ScoreArgs{Keys: keys})
	case plan.IndexerPagedSplit:
		return a.scoreChunks(s, l, w, in, kernel.ScoreArgs{Keys: c.Index, Table: a.step.table})
	case plan.IndexerPagedNative:
		return a.scoreChunks(s, l, w, in, kernel.ScoreArgs{Keys: c.Index, Table: a.step.table, NextN: s.plan.Indexer.NextN})
	}
	return fmt.Errorf("indexer path %v is not one this family runs", s.plan.Indexer.Kind)
}

// gatherKeys copies the indexer keys of a launch's requests into one contiguous page.
func (a *Attention) gatherKeys(l *launch, c Cache) (kernel.Pool, error) {
	keys, err := layout.IndexOf(c.Index.Layout)
	if err != nil {
		return kernel.Pool{}, err
	}
	n := l.indexFlat.Rows
	t, err := a.buf.ikeys.Take(kernel.U8, 1, keys.PageBytes(n))
	if err != nil {
		return kernel.Pool{}, err
	}
	out := kernel.Pool{Mem: t, Layout: c.Index.Layout, PageTokens: n}
	return out, a.dev.GatherIndex(kernel.IndexGatherArgs{Out: out, Slots: l.indexFlat, Pool: c.Index})
}

// scoreChunks scores and selects in chunks of rows, so that the score matrix stays within the plan's bound.
func (a *Attention) scoreChunks(s *segment, l *launch, w *IndexWeights, in sparseInput, args kernel.ScoreArgs) error {
	chunk := s.plan.Indexer.RowsPerChunk
	if chunk <= 0 {
		return fmt.Errorf("the plan scores %d rows at a time", chunk)
	}
	for first := l.first; first < l.last; first += chunk {
		if err := a.scoreRows(l.scoreWidth, w, in, args, first, min(first+chunk, l.last)); err != nil {
			return err
		}
	}
	return nil
}

func (a *Attention) scoreRows(width int, w *IndexWeights, in sparseInput, args kernel.ScoreArgs, first, last int) error {
	q8, weights, err := a.queries(w, args.Keys.Layout, in, first, last)
	if err != nil {
		return err
	}
	scores, err := a.buf.scores.Take(kernel.F32, last-first, width)
	if err != nil {
		return err
	}
	lens := a.step.lens.Slice(first, last)
	args.Out, args.Q, args.W, args.Lens = scores, q8, weights, lens
	args.Heads, args.SkipUpTo = a.params.IndexHeads, a.params.TopK
	if args.Table.Given() {
		args.TableRow = a.step.request.Slice(first, last)
	} else {
		args.Start = a.step.indexStart.Slice(first, last)
	}
	if err := a.dev.Scores(args); err != nil {
		return err
	}
	return a.dev.Select(kernel.SelectArgs{Out: a.step.positions.Slice(first, last), Scores: scores, Lens: lens})
}

// queries prepares the indexer queries and head weights of rows first to last.
func (a *Attention) queries(w *IndexWeights, keys layout.Kind, in sparseInput, first, last int) (q, weights kernel.Tensor, err error) {
	n, width := last-first, a.params.IndexHeads*layout.IndexDim
	raw, err := a.buf.iq.Take(a.dev.Activation(), n, width)
	if err != nil {
		return
	}
	if err = a.dev.Multiply(kernel.MultiplyArgs{Out: raw, X: in.qr.Slice(first, last), W: w.Q}); err != nil {
		return
	}
	projected, err := a.buf.iweights.Take(kernel.F32, n, a.params.IndexHeads)
	if err != nil {
		return
	}
	if err = a.dev.Multiply(kernel.MultiplyArgs{Out: projected, X: in.x.Slice(first, last), W: w.Weights}); err != nil {
		return
	}
	kind := kernel.F32
	if keys == layout.IndexPage132 {
		kind = kernel.E4M3
	}
	if q, err = a.buf.iq8.Take(kind, n, width); err != nil {
		return
	}
	if weights, err = a.buf.iw.Take(kernel.F32, n, a.params.IndexHeads); err != nil {
		return
	}
	err = a.dev.IndexQuery(kernel.IndexQueryArgs{Out: q, W: weights, Q: raw, Weights: projected, Angles: a.step.angles.Slice(first, last),
		Heads: a.params.IndexHeads, Pairing: a.params.IndexPairing, Hadamard: rotated(keys)})
	return
}
