package plan

import (
	"fmt"
	"math"
)

// rowIndexer sets the indexer path of a segment of the catalogue sparrow.
func (w *Builder) rowIndexer(s *Segment) {
	if w.cfg.Model.Dense() {
		s.Because(reasonEveryKey)
		return
	}
	var why Reason
	switch s.Row {
	case RowDensePrefill:
		switch {
		case !s.NeedIndices:
			s.Indexer.Kind, why = IndexerKOnly, ReasonKOnly
		case w.cfg.T <= w.cfg.Model.ShortKeys():
			s.Indexer.Kind, why = IndexerKOnlyWithIndices, ReasonKOnlyIndices
		default:
			s.Indexer.Kind, why = IndexerRagged, ReasonRagged
		}
	case RowShortPrefill:
		s.Indexer.Kind, why = IndexerKOnlyWithIndices, ReasonKOnlyIndices
	case RowSparsePrefill:
		if s.Indexer.Kind, why = IndexerRagged, ReasonRagged; w.cfg.Model.V41() {
			s.Indexer, why = Indexer{Kind: IndexerPagedSplit, NextN: 1}, reasonSharedPaged
		}
	case RowDecode:
		s.Indexer, why = Indexer{Kind: IndexerPagedSplit, NextN: 1}, ReasonPagedSplit
	case RowVerify:
		s.Indexer, why = Indexer{Kind: IndexerPagedSplit, NextN: 1}, ReasonPagedSplit
		switch g := together(&w.cfg.Hardware, &w.cfg.Model, w.cfg.Deterministic, s.NextN); {
		case g > 1:
			why = w.verifyTogether(s, g)
		case s.NextN == 1 || w.cfg.Model.V41():
		case w.cfg.Deterministic:
			why.Text += ": deterministic verifies score like decodes"
		default:
			why.Text += fmt.Sprintf(": %d rows do not fill groups of %v, which would be scored at once", s.NextN,
				w.cfg.Hardware.NativeNextN)
		}
	case RowDraft:
		s.Indexer, why = Indexer{Kind: IndexerPagedSplit, NextN: 1}, ReasonDraftSplit
		if w.cfg.Model.V4() {
			s.Indexer, why = Indexer{}, ReasonWindowOnly
			if w.plan.Pass == PassBlock {
				why.Text += fmt.Sprintf(": every row of a block of %d attends to the %d tokens before the block and "+
					"to all rows of the block", w.cfg.Model.Block, w.cfg.Model.Window)
				break
			}
			why.Text += fmt.Sprintf(": in one launch, for the last %d rows of each request, which later rows attend to",
				w.cfg.Model.Window)
		}
	case RowUnset, RowWhole, RowLatentPrefill:
	}
	if s.Row.DecodeLike() && s.Indexer.Kind.Scores() && w.b.shortSegment(w.cfg, s.Spans[0].Request) {
		s.Variant, why = VariantShort, reasonShort
	}
	s.Because(why)
}

// together returns how many of n verified rows of a request are scored at a time; 1 means one by one. In deterministic
// mode, every row must be computed with the same arithmetic, so verified rows are scored one by one, like decode rows.
func together(h *Hardware, m *Model, deterministic bool, n int) int {
	if deterministic || m.V41() {
		return 1
	}
	return h.group(n)
}

// verifyTogether sets the indexer path that scores the verified rows of a request at once, or in groups, and returns
// the reason.
func (w *Builder) verifyTogether(s *Segment, together int) Reason {
	s.Indexer = Indexer{Kind: IndexerPagedNative, NextN: together, KernelN: w.cfg.Hardware.kernelN(together)}
	why := ReasonPagedNative
	if together < s.NextN {
		why = reasonPagedGroups
		c := w.cfg.Hardware.costs()
		why.Text += fmt.Sprintf("%d of a request: %s", together, c.groupReason())
	}
	if masked := s.Indexer.KernelN - together; masked > 0 {
		why.Text += fmt.Sprintf(": %d rows use the kernel for %d rows, with %d masked", together, s.Indexer.KernelN,
			masked)
	}
	return why
}

// kernelN returns the number of rows of the kernel that scores n rows of a request at once: kernels for Hopper are
// built for 1, 2 and 4 rows, all other kernels support n rows.
func (h *Hardware) kernelN(n int) int {
	if h.Arch == SM90 && !h.portable() && n == 3 {
		return 4
	}
	return n
}

// Scores reports whether the rows of the segment compute a score matrix: the indexer path computes scores, and the
// segment does not have VariantShort, with which all keys of every request are selected.
func (s *Segment) Scores() bool { return s.Indexer.Kind.Scores() && s.Variant != VariantShort }

// Scores reports whether the path computes a score matrix [rows, keys].
func (k IndexerKind) Scores() bool {
	switch k {
	case IndexerRagged, IndexerPagedSplit, IndexerPagedNative, IndexerContiguous:
		return true
	case IndexerNone, IndexerCarry, IndexerKOnly, IndexerKOnlyWithIndices:
		return false
	}
	return false
}

// sizeScores sets the width of the score matrix and cuts it into chunks of rows (dispatch 6). Kernels of the catalogue
// sparrow write a row's scores from column 0, so the width is the number of keys of the longest request. Kernels of the
// public catalogue concatenate all gathered keys of the batch. Paged scores are as wide as the page table.
func (w *Builder) sizeScores(s *Segment) {
	cfg := w.cfg
	total, longest := 0, 0
	if s.NextN == 0 {
		for i := range s.Spans {
			keys := spanKeys(w.cfg, w.b, &s.Spans[i])
			total += keys
			longest = max(longest, keys)
		}
	}
	s.Keys = total
	if s.Indexer.Kind != IndexerNone {
		s.Indexer.Heads = paddedIndexHeads(cfg.Hardware.Arch, cfg.Model.IndexHeads)
	}
	if n := s.Indexer.Heads; s.Row != RowWhole && s.Scores() && n > cfg.Model.IndexHeads {
		s.Reason("dispatch 6",
			"%d index heads are padded to %d, which the score kernels require; the added heads have weight zero",
			cfg.Model.IndexHeads, n)
	}
	if !s.Scores() {
		return
	}
	width := total
	switch {
	case s.Indexer.Kind == IndexerPagedSplit || s.Indexer.Kind == IndexerPagedNative:
		width = w.plan.TablePages * cfg.Page
	case s.Row != RowWhole:
		width = longest
	}
	keys := max(1, cfg.Model.IndexKeys(width))
	s.Indexer.ScoreWidth = keys
	if s.Row != RowWhole && cfg.Hardware.Arch.CUDA() {
		// The selection kernel reads scores sixteen bytes at a time, starting at the beginning of each row.
		s.Indexer.ScoreWidth = (s.Indexer.ScoreWidth + 3) &^ 3
	}
	s.Indexer.RowsPerChunk = s.KernelRows
	if s.NextN == 0 {
		s.Indexer.RowsPerChunk = w.chunkRows(s, s.KernelRows, keys)
	}
}

const (
	// smallScores is the maximum number of elements of a score matrix for which memory is not checked.
	smallScores = 8_000_000
	// scoreFraction is the share of memory that scores may use: of the free memory, and of the memory that is not used
	// by weights and the cache.
	scoreFraction = 0.2
	staticPart    = 0.9
)

// chunkRows returns the number of rows whose scores fit in scoreBudget. Whether a score matrix is small enough to skip
// the check depends on its keys, not on padding.
func (w *Builder) chunkRows(s *Segment, rows, keys int) int {
	if int64(rows)*int64(keys) < smallScores {
		return rows
	}
	width := s.Indexer.ScoreWidth
	elements := int64(rows) * int64(width)
	budget := scoreBudget(w.cfg, w.b)
	if 4*elements <= budget {
		return rows
	}
	chunk := clamp(int(min(budget/(4*int64(width)), math.MaxInt32)), 1, rows)
	s.Reason("dispatch 6", "scores of %d x %d in chunks of %d rows: budget %d bytes", rows, width, chunk,
		budget)
	return chunk
}

// scoreBudget returns the maximum bytes of one chunk of scores. It depends on the memory that is free now
// (Batch.FreeBytes) and is at most Config.ScoreCap.
func scoreBudget(cfg *Config, b *Batch) int64 {
	budget := cfg.ScoreCap
	if b.FreeBytes > 0 {
		budget = min(budget, int64(scoreFraction*float64(b.FreeBytes)))
	}
	if total := float64(cfg.Hardware.MemoryBytes); total > 0 {
		budget = min(budget, int64(scoreFraction*total*(1-staticPart)), int64(0.3*total))
	}
	return max(1, budget)
}

// IndexerAt returns the indexer path of one layer. Shared layers run no indexer and use the indices of an earlier
// layer, if carried reports that these are passed on. Layers of linear attention, V4 layers without entries of ratio 4,
// and V4's drafting layers have no indexer. All other layers use the path of the segment.
func (c *Config) IndexerAt(s *Segment, layer int, carried bool) (Indexer, error) {
	if layer < 0 {
		return Indexer{}, fmt.Errorf("plan: layer %d does not exist; layers are counted from 0", layer)
	}
	if c.Model.V4() && layer < len(c.Model.Ratios) && c.Model.Ratios[layer] != ratio4 &&
		(!c.Model.V41() || c.Model.Ratios[layer] == 0) {
		return Indexer{}, nil
	}
	if c.Model.V4() && layer >= c.Model.Layers || c.Model.LinearAt(layer) {
		return Indexer{}, nil
	}
	// The drafting layer follows the main layers and has its own indexer.
	if layer >= len(c.Shared) || !c.Shared[layer] {
		return s.Indexer, nil
	}
	if !s.NeedIndices {
		return Indexer{}, nil
	}
	if !carried {
		return Indexer{}, ErrCarryMissing(layer, SourceLayer(c.Shared, layer))
	}
	return Indexer{Kind: IndexerCarry}, nil
}

// SourceLayer returns the last layer, at or before l, that computes indices.
func SourceLayer(shared []bool, l int) int {
	for l > 0 && shared[l] {
		l--
	}
	return l
}
