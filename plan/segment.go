package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// segmented makes segments of rows of the same kind (design 3). A row's group depends only on its own position and
// request.
func (w *Builder) segmented() error {
	groups := w.groups()
	if w.b.PaddedRows > 0 && (len(groups) != 1 || groups[0].NextN == 0) {
		return ErrLengths(
			"%d padded rows for a batch that is not all decode, all verify or all draft rows of one width",
			w.b.PaddedRows)
	}
	for i := range groups {
		s := &groups[i]
		if storesOnly(w) {
			s.Form, s.Layout, s.KernelRows, s.Requests = FormEmpty, w.cfg.Layout, s.Rows, len(s.Spans)
			s.Reasons = []Reason{reasonStoresOnly}
			if !w.cfg.Model.Dense() {
				s.Indexer.Kind = IndexerKOnly
			}
			continue
		}
		w.shapeRow(s)
		w.rowIndexer(s)
		if w.cat.Entry(s.Kernel).Segments {
			s.SplitKeys = w.cfg.splitOf(s)
		}
		if err := w.Pad(s); err != nil {
			return err
		}
		if err := w.Size(s); err != nil {
			return err
		}
	}
	w.plan.Segments = groups
	return nil
}

// storesOnly reports whether the pass runs the drafting layer only to store keys for later rows, because no logits are
// needed.
func storesOnly(w *Builder) bool {
	return w.b.Pass != PassTarget && w.plan.Logits == 0 && !w.cfg.Model.V4()
}

// groups cuts every request into spans and sorts them into segments.
func (w *Builder) groups() []Segment {
	list := make([]Segment, 0, 4)
	rank := 0
	group := func(row RowKind, n int) *Segment {
		for i := range list {
			if list[i].Row == row && list[i].NextN == n && list[i].Rank == rank {
				return &list[i]
			}
		}
		list = append(list, Segment{Row: row, NextN: n, Rank: rank, Spans: make([]Span, 0, len(w.b.Requests))})
		return &list[len(list)-1]
	}
	for i := range w.b.Requests {
		rows := w.b.Rows(w.cfg, i)
		if w.cfg.Model.ByRequests() {
			rank = w.b.Requests[i].Rank
		}
		switch w.b.KindOf(i) {
		case ModeDecode:
			group(RowDecode, 1).Span(i, 0, 1)
		case ModeVerify:
			group(RowVerify, rows).Span(i, 0, rows)
		case ModeDraft:
			group(RowDraft, rows).Span(i, 0, rows)
		case ModeExtend, ModeSplitPrefill, ModeDLLMExtend:
			if w.b.Pass != PassTarget && w.cfg.Model.V4() {
				group(RowDraft, rows).Span(i, 0, rows) // the drafting block attends to a window, even in prompts
				continue
			}
			dense, short := cutPrompt(w.cfg, w.b.Requests[i].Prefix, rows)
			if dense > 0 {
				group(RowDensePrefill, 0).Span(i, 0, dense)
			}
			if short > dense {
				group(w.cfg.Model.shortRow(), 0).Span(i, dense, short)
			}
			if rows > short {
				group(RowSparsePrefill, 0).Span(i, short, rows)
			}
		case ModeUnset, ModeMixed, ModeIdle:
		}
	}
	slices.SortStableFunc(list, func(a, b Segment) int {
		return cmp.Or(cmp.Compare(a.Rank, b.Rank), cmp.Compare(a.Row, b.Row), cmp.Compare(a.NextN, b.NextN))
	})
	return list
}

// cutPrompt returns the index of the first new token that is not computed in the dense form, and of the first that
// needs scores. Token i has prefix+i+1 keys.
func cutPrompt(cfg *Config, prefix, rows int) (dense, short int) {
	if cfg.DenseOK {
		dense = clamp(cfg.T-prefix, 0, rows)
	}
	return dense, clamp(cfg.Model.ShortKeys()-prefix, dense, rows)
}

func clamp(v, low, high int) int { return max(low, min(v, high)) }

// shapeRow sets the form and the kernel of one segment.
func (w *Builder) shapeRow(s *Segment) {
	cfg := w.cfg
	switch s.Row {
	case RowDensePrefill:
		// Every key, cached or new, is read from the cache, so that a prompt in chunks gives the same results as the
		// whole prompt.
		w.Dense(s, DenseRagged, ConvertGatherRows)
		s.NeedIndices = w.b.NeedSeed && !cfg.Model.Dense()
		s.Reasons = append(make([]Reason, 0, 6), ReasonDenseRow, reasonDenseGather)
		if !cfg.Model.Dense() {
			s.Because(ReasonDense(cfg.T, cfg.Model.K))
		}
		s.Rejected = reasonsAgainstDense(w.cfg)
	case RowShortPrefill, RowSparsePrefill, RowLatentPrefill:
		w.Sparse(s, autoTarget(cfg), true)
		s.NeedIndices = !cfg.Model.Dense()
		s.Reasons = append(make([]Reason, 0, 6), whyNotDense(w.cfg)...)
		s.Because(whyKernel(w.cfg, s))
		s.Rejected = cfg.RejectedFor(PhasePrefill)
	case RowDecode, RowVerify, RowDraft:
		w.Sparse(s, cfg.Decode, true)
		s.NeedIndices = !(cfg.Model.V4() && s.Row == RowDraft) && !cfg.Model.Dense()
		s.Reasons = append(make([]Reason, 0, 6), ReasonDecodePhase)
		s.Rejected = cfg.RejectedFor(PhaseDecode)
	case RowUnset, RowWhole:
	}
	if s.Convert == ConvertRawToBlock {
		s.Because(ReasonRawToBlock)
	}
	if cfg.Deterministic {
		s.Because(ReasonDeterministic)
	}
	s.SplitsFixed = true
}

// RejectedFor returns the candidates that were rejected for one phase.
func (c *Config) RejectedFor(p Phase) []Rejection {
	list := c.Rejected
	from := slices.IndexFunc(list, func(r Rejection) bool { return r.Phase == p })
	if from < 0 {
		return nil
	}
	to := from
	for to < len(list) && list[to].Phase == p {
		to++
	}
	return list[from:to:to]
}

// reasonsAgainstDense returns the rejection of the prefill kernel for rows in the dense form.
func reasonsAgainstDense(cfg *Config) []Rejection {
	k := autoTarget(cfg)
	return []Rejection{{Kernel: k, Phase: PhasePrefill,
		Reason: "fits, but the row has few enough keys for the dense form"}}
}

// whyNotDense returns the reasons why a prompt row is not computed in the dense form.
func whyNotDense(cfg *Config) []Reason {
	switch {
	case cfg.Model.V4(): // V4 has no dense form
		return make([]Reason, 0, 3)
	case !cfg.DenseOK:
		list := make([]Reason, 0, len(cfg.DenseAgainst)+3)
		for _, why := range cfg.DenseAgainst {
			list = append(list, Reason{"dispatch 5", "not dense: " + why})
		}
		return list
	}
	return []Reason{{"design 3", fmt.Sprintf("not dense: the rows attend to more than %d keys", cfg.T)}}
}

func whyKernel(cfg *Config, s *Segment) Reason {
	if cfg.Prefill == Auto {
		return Reason{"dispatch 8", fmt.Sprintf("auto is %s over %s", s.Kernel, cfg.Layout)}
	}
	return Reason{"dispatch 2", fmt.Sprintf("prompt rows use the prefill kernel %s", s.Kernel)}
}
