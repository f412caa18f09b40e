package plan

import (
	"fmt"
	"slices"
)

// uniform plans one form for the whole batch, as the engines of the public
// catalogue do: the longest request decides for all.
func (w *builder) uniform() error {
	s := Segment{Row: RowWhole, Spans: make([]Span, 0, len(w.b.Requests))}
	facts, err := w.facts()
	if err != nil {
		return err
	}
	for i := range w.b.Requests {
		s.span(i, 0, w.b.Rows(w.cfg, i))
	}
	s.NextN = facts.nextN
	w.uniformForm(&s, facts)
	w.uniformIndexer(&s, facts)
	w.uniformFusion(&s)
	if w.cfg.Deterministic {
		s.because(reasonDeterministic)
	}
	if err := w.complete(&s); err != nil {
		return err
	}
	if w.b.PaddedRows > s.Rows {
		s.reason("dispatch 10", "padded rows select nothing: every index is -1")
	}
	w.plan.Segments = []Segment{s}
	return nil
}

// batchFacts are the lengths the uniform rules look at.
type batchFacts struct {
	nextN   int // rows per request of a decode-like batch, 0 for prompts
	rows    int
	sumKeys int
	maxKeys int
	prefix  bool // some key must come from the cache
}

func (w *builder) facts() (batchFacts, error) {
	var f batchFacts
	for i := range w.b.Requests {
		rows := w.b.Rows(w.cfg, i)
		kind := w.b.KindOf(i)
		if w.b.Mode.ExtendLike() && kind != ModeDecode && kind.DecodeLike() {
			return f,
				&Error{Code: E20, Asked: fmt.Sprintf("request %d of kind %s in a mixed batch of the catalogue public",
					i, kind), Supported: "extend and decode requests", Try: "--catalog sparrow"}
		}
		if w.b.Mode.DecodeLike() {
			if f.nextN != 0 && f.nextN != rows {
				return f,
					lengthError("request %d with %d rows beside requests with %d; the catalogue public takes one width",
						i, rows, f.nextN)
			}
			f.nextN = rows
		}
		keys := w.b.keysOf(w.cfg, i)
		f.rows += rows
		f.sumKeys += keys
		f.maxKeys = max(f.maxKeys, keys)
		f.prefix = f.prefix || keys > rows
	}
	return f, nil
}

// uniformForm applies the dense rule of dispatch section 5, then picks the
// kernel of the phase.
func (w *builder) uniformForm(s *Segment, f batchFacts) {
	cfg := w.cfg
	if f.nextN > 0 {
		s.Kernel = cfg.Decode
		shapeKernel(cfg, s, true)
		s.because(reasonDecodePhase)
		s.Rejected = w.rejected(PhaseDecode)
		if s.Kernel == TRTLLM && w.b.Mode == ModeDecode {
			s.because(reasonUnclipped)
		}
	} else if against := w.againstUniformDense(f); len(against) == 0 {
		w.uniformDense(s, f)
	} else {
		for _, why := range against {
			s.reason("dispatch 5", "not dense: %s", why)
		}
		s.Kernel = w.uniformAuto(s, f)
		shapeKernel(cfg, s, f.prefix)
		s.Rejected = w.rejected(PhasePrefill)
	}
	s.NeedIndices = s.Form != FormDenseMHA || w.b.NeedSeed
	if cfg.Model.v4() && w.b.Mode == ModeDraft {
		s.NeedIndices = false
	}
	if s.Convert == ConvertRawToBlock {
		s.because(reasonRawToBlock)
	}
}

// againstUniformDense lists the conditions of section 5 that fail.
func (w *builder) againstUniformDense(f batchFacts) []string {
	cfg := w.cfg
	list := slices.Clone(cfg.DenseAgainst)
	if w.b.Graph == GraphPiecewise {
		list = append(list, "inside a piecewise graph lengths cannot be branched on")
	}
	if f.maxKeys > cfg.T {
		list = append(list, fmt.Sprintf("the longest request has %d keys, the threshold is %d", f.maxKeys, cfg.T))
	}
	if f.sumKeys > cfg.C {
		list = append(list, fmt.Sprintf("the batch has %d keys, one call holds %d", f.sumKeys, cfg.C))
	}
	return list
}

func (w *builder) uniformDense(s *Segment, f batchFacts) {
	cfg := w.cfg
	kernel := FlashVarlen
	if cfg.Hardware.Arch.sm100Family() {
		kernel = TRTLLMRagged
	}
	gather := ConvertNone
	if f.prefix {
		gather = ConvertGatherBF16
	}
	shapeDense(cfg, s, kernel, gather)
	s.because(reasonDenseRow)
	if f.prefix {
		s.reason("dispatch 7", "%d rows of %s are gathered as BF16, because a prefix is cached",
			f.sumKeys, cfg.Layout)
	}
	if f.maxKeys > cfg.Model.K {
		s.because(reasonDenseAboveK)
	} else {
		s.because(reasonDenseExact)
	}
	s.Rejected = []Rejection{{Kernel: cfg.Prefill, Phase: PhasePrefill,
		Reason: "fits, but the batch is short enough for the dense form"}}
}

// uniformAuto resolves flashmla_auto for this batch (dispatch 8). The choice
// belongs to the plan; the configured kernel stays what it was.
func (w *builder) uniformAuto(s *Segment, f batchFacts) Kernel {
	cfg := w.cfg
	if cfg.SparsePrefill == SparsePrefillAuto {
		return w.bySize(s, f)
	}
	if cfg.Prefill != FlashMLAAuto {
		s.reason("dispatch 2", "prompts use the prefill kernel %s", cfg.Prefill)
		return cfg.Prefill
	}
	kernel, why := autoTarget(cfg), fmt.Sprintf("%s over %s", autoTarget(cfg), cfg.Layout)
	major := cfg.Hardware.Arch.major()
	if cfg.Layout == FP8Row656 && (major == 10 || major == 11) && cfg.Hardware.Toolkit >= 128 &&
		w.b.Mode == ModeExtend {
		why = fmt.Sprintf("%s: %d keys are not fewer than 512 x %d rows", kernel, f.sumKeys, f.rows)
		if f.sumKeys < 512*f.rows {
			kernel = FlashMLASparse
			why = fmt.Sprintf("%s: %d keys are fewer than 512 x %d rows, so gathering pays", kernel, f.sumKeys, f.rows)
		}
	}
	s.reason("dispatch 8", "automatic choice is %s", why)
	return kernel
}

// bySize leaves V4 prompts that one paged launch holds to the paged kernel
// (dispatch 13).
func (w *builder) bySize(s *Segment, f batchFacts) Kernel {
	kernel, most := w.cfg.Decode, w.cfg.Hardware.pagedRowLimit()
	why := fmt.Sprintf("%d rows fit a paged launch, which holds %d", f.rows, most)
	if f.rows > most {
		kernel = w.cfg.Prefill
		why = fmt.Sprintf("%d rows are more than the %d of a paged launch", f.rows, most)
	}
	s.reason("dispatch 13", "sparse prefill by size: %s by %s", why, kernel)
	return kernel
}

// uniformSchedule names the kernel that plans the paged scores of V4: it is
// planned with the batch, also where scores turn out to be contiguous. The
// library's holds as many lengths as a paged launch holds rows.
func (w *builder) uniformSchedule(s *Segment, f batchFacts) {
	cfg := w.cfg
	if !cfg.Model.v4() || !cfg.Hardware.Arch.CUDA() || !s.Indexer.Kind.scores() {
		return
	}
	s.Indexer.Schedule = cfg.Schedule
	most := cfg.Hardware.pagedRowLimit()
	switch by := cfg.Schedule; {
	case by == ScheduleOwn:
	case f.rows > most && !(cfg.Hardware.Arch.sm12x() && cfg.Model.IndexFP4):
		s.Indexer.Schedule = ScheduleOwn
		s.reason("dispatch 13", "schedule by the engine's own kernel: %d lengths exceed the %d of the library's",
			f.rows, most)
	default:
		s.Indexer.Schedule = ScheduleLibrary
	}
}

// uniformIndexer follows dispatch sections 6, 12 and 13.
func (w *builder) uniformIndexer(s *Segment, f batchFacts) {
	var why Reason
	short := f.maxKeys <= w.cfg.Model.shortKeys()
	switch {
	case w.cfg.Model.v4() && w.b.Mode == ModeDraft:
		s.Indexer, why = Indexer{}, reasonWindowOnly
	case !s.NeedIndices:
		s.Indexer.Kind, why = IndexerKOnly, reasonKOnly
	case f.nextN > 0:
		why = w.pagedIndexer(s, short)
	case short && w.cfg.CP.Kind == CPNone:
		s.Indexer.Kind, why = IndexerKOnlyWithIndices, reasonKOnlyIndices
		if w.b.Graph == GraphPiecewise {
			why.Text += "; inside an eager split step of the graph"
		}
	case w.cfg.Model.v4() && w.contiguous(f):
		s.Indexer.Kind, why = IndexerContiguous,
			Reason{"dispatch 13", "one long request: scores over its contiguous compressed keys"}
	case w.cfg.Model.v4():
		s.Indexer, why = Indexer{Kind: IndexerPagedSplit, NextN: 1}, reasonPagedSplit
	default:
		s.Indexer.Kind, why = IndexerRagged, reasonRagged
	}
	s.because(why)
	w.uniformSchedule(s, f)
}

// contiguousRows is the prompt from which V4 scores leave the paged kernel.
const contiguousRows = 8192

func (w *builder) contiguous(f batchFacts) bool {
	cfg := w.cfg
	return cfg.Hardware.Arch.CUDA() && w.b.Mode == ModeExtend && len(w.b.Requests) == 1 && f.rows >= contiguousRows &&
		cfg.CP.Kind == CPNone && !cfg.HiSparse && w.b.Graph == GraphNone && !cfg.Model.IndexFP4 && !cfg.TBO
}

// pagedIndexer chooses among the paths of decode, verify and draft batches.
func (w *builder) pagedIndexer(s *Segment, short bool) Reason {
	cfg, b := w.cfg, w.b
	s.Indexer = Indexer{Kind: IndexerPagedSplit, NextN: 1}
	switch b.Mode {
	case ModeDecode:
		return w.decodeIndexer(s, short)
	case ModeVerify:
		if cfg.Hardware.Arch.sm100Family() && s.NextN >= 2 && cfg.Scores == ScoreDeepGEMM {
			s.Indexer = Indexer{Kind: IndexerPagedNative, NextN: s.NextN}
			return reasonPagedNative
		}
		return reasonPagedSplit
	default:
		return reasonDraftSplit
	}
}

// decodeIndexer: an eager decode may skip scores by length where that was
// validated; a captured one never decides by length, but AMD captures two
// graphs per size and the host picks one.
func (w *builder) decodeIndexer(s *Segment, short bool) Reason {
	cfg, b := w.cfg, w.b
	amd := cfg.Hardware.Arch.AMD()
	skip := short && cfg.CP.Kind == CPNone
	switch {
	case b.Graph == GraphNone && skip && (amd || cfg.DecodeSkip):
		s.Indexer = Indexer{Kind: IndexerKOnlyWithIndices}
		return reasonKOnlyIndices
	case b.Graph != GraphNone && amd && skip:
		s.Indexer, s.Variant = Indexer{Kind: IndexerKOnlyWithIndices}, VariantShort
		return Reason{"dispatch 6", "the host picks the short graph: no request exceeds index_topk"}
	case b.Graph != GraphNone && amd:
		s.Variant = VariantLong
		return Reason{"dispatch 6", "the host picks the long graph: a request exceeds index_topk"}
	}
	return reasonPagedSplit
}

// uniformFusion: selection and transform are one kernel unless something that
// outlives the batch needs positions.
func (w *builder) uniformFusion(s *Segment) {
	cfg, b := w.cfg, w.b
	if !s.NeedIndices || s.Form == FormDenseMHA || !cfg.Fused {
		return
	}
	seeding := cfg.Role == RolePrefill && cfg.Shared != nil && b.NeedSeed
	s.FusedTopK = !(cfg.HiSparse && b.Mode.DecodeLike()) && !seeding
}
