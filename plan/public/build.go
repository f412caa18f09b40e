package public

import (
	"fmt"
	"slices"

	"sparrow/plan"
)

// Build plans one batch. All rows have the same form, which depends on the longest request. Build is pure.
func Build(cfg Config, b plan.Batch) (*plan.Plan, error) {
	if b.Mode == plan.ModeMixed && !cfg.MixedAllowed && len(b.Requests) > 0 {
		return nil, &plan.Error{Code: plan.E20, Asked: "a mixed batch while speculation is on",
			Supported: "separate extend and verify batches", Try: "no speculation"}
	}
	if b.TablePages == 0 && (b.Graph == plan.GraphCapture || b.Graph == plan.GraphReplay) {
		b.TablePages = capturedPages(&cfg)
	}
	base, err := plan.NewBuilder(&cfg.Config, &catalogue, &b)
	if err != nil || b.Mode == plan.ModeIdle {
		return base.Plan(), err
	}
	base.Whole = cfg.Unsliced
	w := &builder{Builder: base, cfg: &cfg, b: &b}
	s, err := w.segment()
	if err != nil {
		return nil, err
	}
	return base.Finish(*s), nil
}

// capturedPages returns the width of the page tables of captured graphs (dispatch 14.5): the whole context and the
// drafts, which may lie beyond it.
func capturedPages(cfg *Config) int {
	tokens := cfg.Model.Context
	if cfg.N > 1 {
		tokens += cfg.N
	}
	return (tokens + cfg.Page - 1) / cfg.Page
}

// builder holds the state of one call of Build.
type builder struct {
	*plan.Builder
	cfg *Config
	b   *plan.Batch
}

// segment makes a segment with every row of the batch.
func (w *builder) segment() (*plan.Segment, error) {
	facts, err := w.facts()
	if err != nil {
		return nil, err
	}
	s := &plan.Segment{Row: plan.RowWhole, NextN: facts.nextN, SplitsFixed: w.cfg.SplitsFixed,
		Spans: make([]plan.Span, 0, len(w.b.Requests))}
	for i := range w.b.Requests {
		s.Span(i, 0, w.b.Rows(&w.cfg.Config, i))
	}
	w.form(s, facts)
	w.indexer(s, facts)
	w.fuse(s)
	if w.cfg.Deterministic {
		s.Because(plan.ReasonDeterministic)
	}
	if err := w.Pad(s); err != nil {
		return nil, err
	}
	if w.dealt(s) {
		size := w.cfg.CP.Size
		s.KernelRows = (s.KernelRows + size - 1) / size
		s.Reason("dispatch 15", "context parallelism leaves each rank its share of the rows")
	}
	if err := w.Size(s); err != nil {
		return nil, err
	}
	if w.b.PaddedRows > s.Rows {
		s.Reason("dispatch 10", "padded rows select nothing: every index is -1")
	}
	return s, nil
}

// dealt reports whether context parallelism distributes the rows to ranks: interleave needs at least one token per
// rank, zigzag one long request.
func (w *builder) dealt(s *plan.Segment) bool {
	if w.b.Mode != plan.ModeExtend && w.b.Mode != plan.ModeMixed {
		return false
	}
	cp := w.cfg.CP
	return cp.Kind == CPInterleave && s.Rows >= cp.Size ||
		cp.Kind == CPZigzag && len(s.Spans) == 1 && s.Rows >= 2*cp.Size
}

// batchFacts holds the lengths of a batch that decide its form and indexer path.
type batchFacts struct {
	nextN   int // rows per request of a decode-like batch, 0 for prompts
	rows    int
	sumKeys int
	maxKeys int
	prefix  bool // at least one key must come from the cache
}

func (w *builder) facts() (batchFacts, error) {
	var f batchFacts
	for i := range w.b.Requests {
		rows := w.b.Rows(&w.cfg.Config, i)
		kind := w.b.KindOf(i)
		if w.b.Mode.ExtendLike() && kind != plan.ModeDecode && kind.DecodeLike() {
			return f, &plan.Error{Code: plan.E20,
				Asked:     fmt.Sprintf("request %d of kind %s in a mixed batch of the catalogue public", i, kind),
				Supported: "extend and decode requests", Try: "--catalog sparrow"}
		}
		if w.b.Mode.DecodeLike() {
			if f.nextN != 0 && f.nextN != rows {
				return f, plan.ErrLengths("request %d with %d rows in a batch whose other requests have %d; the "+
					"catalogue public needs the same number in all requests", i, rows, f.nextN)
			}
			f.nextN = rows
		}
		keys := w.b.KeysOf(&w.cfg.Config, i)
		f.rows += rows
		f.sumKeys += keys
		f.maxKeys = max(f.maxKeys, keys)
		f.prefix = f.prefix || keys > rows
	}
	return f, nil
}

// form applies the dense rule of dispatch section 5, then picks the
// kernel of the phase.
func (w *builder) form(s *plan.Segment, f batchFacts) {
	cfg := w.cfg
	if f.nextN > 0 {
		w.Sparse(s, cfg.Decode, true)
		s.Because(plan.ReasonDecodePhase)
		s.Rejected = cfg.RejectedFor(plan.PhaseDecode)
		if s.Kernel == plan.TRTLLM && w.b.Mode == plan.ModeDecode {
			s.Reason("dispatch 11", "the kernel takes unclipped lengths in plain decode")
		}
	} else if against := w.againstDense(f); len(against) == 0 {
		w.dense(s, f)
	} else {
		for _, why := range against {
			if !cfg.Model.V4() { // V4 has no dense form
				s.Reason("dispatch 5", "not dense: %s", why)
			}
		}
		w.Sparse(s, w.prefill(s, f), f.prefix)
		s.Rejected = cfg.RejectedFor(plan.PhasePrefill)
	}
	s.NeedIndices = s.Form != plan.FormDenseMHA || w.b.NeedSeed
	if cfg.Model.V4() && w.b.Mode == plan.ModeDraft {
		s.NeedIndices = false
	}
	if s.Convert == plan.ConvertRawToBlock {
		s.Because(plan.ReasonRawToBlock)
	}
}

// againstDense lists the conditions for the dense form (dispatch 5) that are not met.
func (w *builder) againstDense(f batchFacts) []string {
	cfg := w.cfg
	list := slices.Clone(cfg.DenseAgainst)
	if w.b.Graph == plan.GraphPiecewise {
		list = append(list, "a piecewise graph cannot branch on lengths")
	}
	if f.maxKeys > cfg.T {
		list = append(list, fmt.Sprintf("the longest request has %d keys, the threshold is %d", f.maxKeys, cfg.T))
	}
	if f.sumKeys > cfg.C {
		list = append(list, fmt.Sprintf("the batch has %d keys, one call holds %d", f.sumKeys, cfg.C))
	}
	return list
}

func (w *builder) dense(s *plan.Segment, f batchFacts) {
	cfg := w.cfg
	kernel := plan.FlashVarlen
	if cfg.Hardware.Arch.SM100Family() {
		kernel = plan.TRTLLMRagged
	}
	gather := plan.ConvertNone
	if f.prefix && cfg.KV == plan.FP8E4M3 {
		gather = plan.ConvertGatherBF16
	}
	w.Dense(s, kernel, gather)
	s.Because(plan.ReasonDenseRow)
	switch {
	case gather != plan.ConvertNone:
		s.Reason("dispatch 7", "%d rows of %s are gathered as BF16, because a prefix is cached", f.sumKeys, cfg.Layout)
	case f.prefix:
		s.Reason("dispatch 7", "the cached prefix is %s: nothing is dequantised", cfg.Layout)
	}
	s.Because(plan.ReasonDense(f.maxKeys, cfg.Model.K))
	s.Rejected = []plan.Rejection{{Kernel: cfg.Prefill, Phase: plan.PhasePrefill,
		Reason: "fits, but the batch is short enough for the dense form"}}
}

// prefill resolves flashmla_auto for this batch (dispatch 8). The result is stored in the plan, not in the
// configuration.
func (w *builder) prefill(s *plan.Segment, f batchFacts) plan.Kernel {
	cfg := w.cfg
	if cfg.SparsePrefill == plan.SparsePrefillAuto {
		return w.bySize(s, f)
	}
	if cfg.Prefill != plan.FlashMLAAuto {
		s.Reason("dispatch 2", "prompts use the prefill kernel %s", cfg.Prefill)
		return cfg.Prefill
	}
	kernel, why := auto(cfg), fmt.Sprintf("%s over %s", auto(cfg), cfg.Layout)
	major := cfg.Hardware.Arch.Major()
	if cfg.Layout == plan.FP8Row656 && (major == 10 || major == 11) && cfg.Hardware.Toolkit >= 128 &&
		w.b.Mode == plan.ModeExtend {
		why = fmt.Sprintf("%s: %d keys are not fewer than 512 x %d rows", kernel, f.sumKeys, f.rows)
		if f.sumKeys < 512*f.rows {
			kernel = plan.FlashMLASparse
			why = fmt.Sprintf("%s: %d keys are fewer than 512 x %d rows, so gathering is "+
				"faster", kernel, f.sumKeys, f.rows)
		}
	}
	s.Reason("dispatch 8", "automatic choice is %s", why)
	return kernel
}

// bySize returns the kernel for V4 prompts: the paged kernel if they fit in one paged launch (dispatch 13).
func (w *builder) bySize(s *plan.Segment, f batchFacts) plan.Kernel {
	kernel, most := w.cfg.Decode, w.cfg.Hardware.PagedRowLimit()
	why := fmt.Sprintf("%d rows fit a paged launch, which holds %d", f.rows, most)
	if f.rows > most {
		kernel = w.cfg.Prefill
		why = fmt.Sprintf("%d rows are more than the %d of a paged launch", f.rows, most)
	}
	s.Reason("dispatch 13", "sparse prefill by size: %s by %s", why, kernel)
	return kernel
}

// schedule sets the kernel that plans the paged scores of V4. It is set for every batch, also if its scores are
// contiguous. The number of rows is compared with the row limit of a paged launch, if there is such a launch.
func (w *builder) schedule(s *plan.Segment, f batchFacts) {
	cfg := w.cfg
	if !cfg.Model.V4() || !cfg.Hardware.Arch.CUDA() || !s.Indexer.Kind.Scores() {
		return
	}
	s.Indexer.Schedule = cfg.Schedule
	if most := cfg.Hardware.PagedRowLimit(); cfg.Schedule == plan.ScheduleOwn || cfg.Hardware.Arch.SM12x() {
		return
	} else if s.Indexer.Schedule = plan.ScheduleLibrary; f.rows > most {
		s.Indexer.Schedule = plan.ScheduleOwn
		s.Reason("dispatch 13", "schedule by the engine's own kernel: %d lengths are more than the %d rows of a paged "+
			"launch", f.rows, most)
	}
}

// indexer follows dispatch sections 6, 12 and 13.
func (w *builder) indexer(s *plan.Segment, f batchFacts) {
	var why plan.Reason
	short := f.maxKeys <= w.cfg.Model.ShortKeys()
	switch {
	case w.cfg.Model.V4() && w.b.Mode == plan.ModeDraft:
		s.Indexer, why = plan.Indexer{}, plan.ReasonWindowOnly
	case !s.NeedIndices:
		s.Indexer.Kind, why = plan.IndexerKOnly, plan.ReasonKOnly
	case f.nextN > 0:
		why = w.pagedIndexer(s, short)
	case short && w.cfg.CP.Kind == CPNone:
		s.Indexer.Kind, why = plan.IndexerKOnlyWithIndices, plan.ReasonKOnlyIndices
		if w.b.Graph == plan.GraphPiecewise {
			why.Text += "; inside an eager split step of the graph"
		}
	case w.cfg.Model.V4() && w.contiguous(f):
		s.Indexer.Kind, why = plan.IndexerContiguous,
			plan.Reason{Rule: "dispatch 13", Text: "one long request: scores over its contiguous compressed keys"}
	case w.cfg.Model.V4():
		s.Indexer, why = plan.Indexer{Kind: plan.IndexerPagedSplit, NextN: 1}, plan.ReasonPagedSplit
	default:
		s.Indexer.Kind, why = plan.IndexerRagged, plan.ReasonRagged
	}
	s.Because(why)
	w.schedule(s, f)
}

// contiguousRows is the minimum length of V4 prompts, in rows, whose scores do not use the paged kernel.
const contiguousRows = 8192

func (w *builder) contiguous(f batchFacts) bool {
	cfg := w.cfg
	return cfg.Hardware.Arch.CUDA() && w.b.Mode == plan.ModeExtend && len(w.b.Requests) == 1 &&
		f.rows >= contiguousRows && cfg.CP.Kind == CPNone && !cfg.HiSparse && w.b.Graph == plan.GraphNone &&
		!cfg.Model.IndexFP4 && !cfg.TBO
}

// pagedIndexer chooses among the paths of decode, verify and draft batches.
func (w *builder) pagedIndexer(s *plan.Segment, short bool) plan.Reason {
	cfg, b := w.cfg, w.b
	s.Indexer = plan.Indexer{Kind: plan.IndexerPagedSplit, NextN: 1}
	switch b.Mode {
	case plan.ModeDecode:
		return w.decodeIndexer(s, short)
	case plan.ModeVerify:
		if cfg.Hardware.Arch.SM100Family() && s.NextN >= 2 && cfg.Scores == ScoreDeepGEMM {
			s.Indexer = plan.Indexer{Kind: plan.IndexerPagedNative, NextN: s.NextN}
			return plan.ReasonPagedNative
		}
		return plan.ReasonPagedSplit
	default:
		return plan.ReasonDraftSplit
	}
}

// decodeIndexer returns the indexer path of decode batches. A decode without a graph may skip scores of short requests
// if that was validated (DecodeSkip). A captured decode does not depend on lengths; on AMD two graphs are captured per
// size, and the host chooses one.
func (w *builder) decodeIndexer(s *plan.Segment, short bool) plan.Reason {
	cfg, b := w.cfg, w.b
	amd := cfg.Hardware.Arch.AMD()
	skip := short && cfg.CP.Kind == CPNone
	switch {
	case b.Graph == plan.GraphNone && skip && (amd || cfg.DecodeSkip):
		s.Indexer = plan.Indexer{Kind: plan.IndexerKOnlyWithIndices}
		return plan.ReasonKOnlyIndices
	case b.Graph != plan.GraphNone && amd && skip:
		s.Indexer, s.Variant = plan.Indexer{Kind: plan.IndexerKOnlyWithIndices}, plan.VariantShort
		return plan.Reason{Rule: "dispatch 6", Text: "the host picks the short graph: no request exceeds index_topk"}
	case b.Graph != plan.GraphNone && amd:
		s.Variant = plan.VariantLong
		return plan.Reason{Rule: "dispatch 6", Text: "the host picks the long graph: a request exceeds index_topk"}
	}
	return plan.ReasonPagedSplit
}

// fuse sets whether selection and transform run as one kernel. They do unless the selected positions are needed after
// the batch.
func (w *builder) fuse(s *plan.Segment) {
	cfg, b := w.cfg, w.b
	if !s.NeedIndices || s.Form == plan.FormDenseMHA || !cfg.Fused {
		return
	}
	seeding := cfg.Role == RolePrefill && cfg.Shared != nil && b.NeedSeed
	s.FusedTopK = !(cfg.HiSparse && b.Mode.DecodeLike()) && !seeding
}

// auto returns the prefill kernel if it does not depend on the batch: the configured kernel, or the paged kernel that
// flashmla_auto stands for.
func auto(cfg *Config) plan.Kernel {
	switch {
	case cfg.Prefill != plan.FlashMLAAuto:
		return cfg.Prefill
	case cfg.Layout == plan.BF16Row1152:
		return plan.FlashMLASparse
	}
	return plan.FlashMLAKV
}
