package plan

import (
	"cmp"
	"fmt"
	"slices"
)

// speculation settles n, the rows verified per request (dispatch 12, 16).
func (r *resolver) speculation() error {
	s := r.policy.Speculation
	if s.Steps < 0 || s.Branches < 0 || s.Tokens < 0 {
		return fmt.Errorf("plan: policy: speculation %+v must not be negative", s)
	}
	if s.Branches > 1 {
		return &Error{Code: E11, Asked: fmt.Sprintf("drafts with %d branches per step", s.Branches),
			Supported: "chains: one branch per step", Try: "one branch"}
	}
	r.cfg.N = 1
	if s.Steps == 0 && s.Tokens == 0 {
		return nil
	}
	r.cfg.N = s.Tokens
	if s.Steps > 0 {
		r.cfg.N = s.Steps + 1
		if s.Tokens != 0 && s.Tokens != r.cfg.N {
			r.notice(NoticeWarning, "dispatch 16", "a chain of %d steps verifies %d tokens, not the %d asked for",
				s.Steps, r.cfg.N, s.Tokens)
		}
	}
	if r.policy.Catalog == CatalogSparrow && r.cfg.N > 1 {
		if r.model.NextN == 0 {
			return ErrDraftHeadMissing("a model", r.model.Layers, fmt.Sprintf("model.layers.%d.*", r.model.Layers))
		}
		r.notice(NoticeInfo, "design 6", "up to %d drafts by layer %d are verified as up to %d rows of a request; "+
			"unless deterministic, scores of %v rows are computed at once, of any other number row by row", r.cfg.N-1,
			r.model.Layers, r.cfg.N, r.hw.NativeNextN)
	}
	if r.policy.Catalog == CatalogPublic && r.cfg.N > 1 {
		r.cfg.MixedAllowed = false
		r.cfg.MaxRunning = 48
		r.notice(NoticeInfo, "dispatch 2", "speculation turns mixed batches off")
	}
	return nil
}

// parallelism checks context parallelism (dispatch 15).
func (r *resolver) parallelism() error {
	cp, p := r.policy.CP, r.policy
	r.ranks()
	refuse := func(asked, supported, try string) error {
		return &Error{Code: E10, Asked: asked, Supported: supported, Try: try}
	}
	switch {
	case cp.Kind == CPNone && cp.Size > 1:
		return refuse(fmt.Sprintf("context parallelism over %d ranks without a strategy", cp.Size), cpKinds.list(),
			"the strategy interleave")
	case cp.Kind == CPNone:
		return nil
	case p.Catalog == CatalogSparrow:
		return refuse("context parallelism in the catalogue sparrow", "one rank per sequence", "no context parallelism")
	case cp.Size < 2 || cp.Size > 8:
		return refuse(fmt.Sprintf("context parallelism over %d ranks", cp.Size), "2 to 8 ranks", "2 ranks")
	case cp.Kind == CPZigzag && r.model.v4():
		return refuse("zigzag context parallelism for "+r.model.Family.String(), "interleave",
			"the strategy interleave")
	case p.AttentionTP > 1:
		return refuse(fmt.Sprintf("context parallelism with attention split over %d ranks", p.AttentionTP),
			"attention tensor parallelism of 1", "attention tensor parallelism of 1")
	case cp.Kind == CPInterleave && p.DP > 1:
		return refuse(fmt.Sprintf("interleaved context parallelism with %d data-parallel ranks", p.DP),
			"data parallelism of 1", "data parallelism of 1")
	case p.Role == RoleDecode:
		return refuse("context parallelism on a decode worker", "prefill workers and workers that do both",
			"no context parallelism on this worker")
	}
	r.cfg.CP = cp
	r.reason("dispatch 15",
		"%s context parallelism over %d ranks turns the dense form, the score skip and prefill graphs off", cp.Kind,
		cp.Size)
	return nil
}

// sharing finds the layers that reuse indices and whether they can get them.
func (r *resolver) sharing() error {
	shared := make([]bool, r.model.Layers)
	any := false
	for l := range shared {
		shared[l] = !r.model.v4() && r.model.Share.Shared(l)
		any = any || shared[l]
	}
	r.cfg.TBO = r.policy.TBO
	for _, cut := range r.policy.PipelineCuts {
		if cut < 1 || cut >= r.model.Layers {
			return fmt.Errorf("plan: policy: pipeline cut at layer %d of %d", cut, r.model.Layers)
		}
		if shared[cut] && !r.policy.CarryIndices {
			return &Error{Code: E12,
				Asked: fmt.Sprintf("a pipeline stage that starts at layer %d, which shares the indices of layer %d",
					cut, sourceLayer(shared, cut)),
				Supported: "stages that start on a layer with its own indexer, or that carry indices",
				Try:       fmt.Sprintf("a cut at layer %d", sourceLayer(shared, cut))}
		}
	}
	if any && r.policy.TBO && !r.policy.CarryIndices {
		return &Error{Code: E12,
			Asked:     "two-batch overlap of a model whose layers share indices, without carrying them",
			Supported: "each sub-batch carrying its own indices", Try: "no two-batch overlap"}
	}
	if any {
		r.cfg.Shared = shared
	}
	return nil
}

// sourceLayer is the last layer before l that computes indices.
func sourceLayer(shared []bool, l int) int {
	for l > 0 && shared[l] {
		l--
	}
	return l
}

// page settles the tokens per page (dispatch 4, 16).
func (r *resolver) page() error {
	want := r.policy.Page
	switch {
	case r.model.v4():
		r.cfg.Page = 256
		if want != 0 && want != 256 {
			r.notice(NoticeWarning, "dispatch 16", "%s needs pages of 256 tokens; the %d asked for is not used",
				r.model.Family, want)
		}
		return nil
	case r.hw.Arch.AMD() && r.hw.Preshuffle:
		r.cfg.Page = 64
		r.reason("dispatch 4", "page 64: the preshuffled score kernel is usable")
		if want != 0 && want%16 != 0 {
			return &Error{Code: E06, Asked: fmt.Sprintf("pages of %d tokens with preshuffled index keys", want),
				Supported: "multiples of 16", Try: "a page of 64"}
		}
		if want != 0 {
			r.cfg.Page = want
		}
		return nil
	case r.hw.Arch.AMD():
		r.cfg.Page = 1
		r.reason("dispatch 4", "page 1: the preshuffled score kernel is not usable")
	default:
		r.cfg.Page = 64
	}
	if want != 0 && want != r.cfg.Page {
		return &Error{Code: E06, Asked: fmt.Sprintf("pages of %d tokens for %s on %s", want, r.model.Family, r.hw.Arch),
			Supported: fmt.Sprintf("%d", r.cfg.Page), Try: fmt.Sprintf("a page of %d", r.cfg.Page)}
	}
	return nil
}

// selection settles top-k and paged scores (dispatch 10, 16).
func (r *resolver) selection() error {
	p := r.policy
	r.cfg.Fused = p.Fused != SwitchOff
	r.cfg.TopK, r.cfg.Scores, r.cfg.TieBreak = p.TopK, p.Scores, p.TieBreak
	if p.Catalog == CatalogSparrow {
		return r.sparrowSelection()
	}
	switch p.TopK {
	case TopKUnset:
		r.cfg.TopK = TopKSGL
	case TopKTorch:
		if r.cfg.Fused {
			return &Error{Code: E09, Asked: "selection by torch fused with the transform",
				Supported: "torch without fusion, sgl-kernel or flashinfer with it", Try: "fused off"}
		}
	case TopKStable:
		return &Error{Code: E09, Asked: "the stable selection of the catalogue sparrow",
			Supported: "sgl-kernel, flashinfer, torch", Try: "--catalog sparrow"}
	case TopKSGL, TopKFlashInfer:
	}
	if p.TieBreak != TieNone && r.cfg.TopK != TopKFlashInfer {
		return &Error{Code: E09, Asked: fmt.Sprintf("a tie break with selection by %s", r.cfg.TopK),
			Supported: "a tie break with flashinfer", Try: "selection by flashinfer"}
	}
	arch := r.hw.Arch
	switch {
	case p.Scores == ScoreUnset && arch.CUDA():
		r.cfg.Scores = ScoreDeepGEMM
	case p.Scores == ScoreUnset && arch.AMD():
		r.cfg.Scores = ScoreAiter
	case p.Scores == ScoreUnset:
		r.cfg.Scores = ScoreNative
	case p.Scores == ScoreCuteDSL && !arch.sm100Family(), p.Scores == ScoreDeepGEMM && !arch.CUDA(),
		p.Scores == ScoreAiter && !arch.AMD():
		return &Error{Code: E02, Asked: fmt.Sprintf("paged scores by %s on %s", p.Scores, arch),
			Supported: "deepgemm on CUDA, cutedsl on sm100, aiter on AMD", Try: "no explicit score kernel"}
	}
	return nil
}

func (r *resolver) sparrowSelection() error {
	p := r.policy
	if p.TopK != TopKUnset && p.TopK != TopKStable {
		return &Error{Code: E09, Asked: fmt.Sprintf("selection by %s in the catalogue sparrow", p.TopK),
			Supported: "stable", Try: "selection by stable"}
	}
	if p.TieBreak == TieLarge {
		return &Error{Code: E09, Asked: "ties won by the largest position",
			Supported: "ties won by the smallest position", Try: "the tie break small"}
	}
	if p.Scores != ScoreUnset && p.Scores != ScoreNative {
		return &Error{Code: E02, Asked: fmt.Sprintf("paged scores by %s in the catalogue sparrow", p.Scores),
			Supported: "native", Try: "no explicit score kernel"}
	}
	r.cfg.TopK, r.cfg.TieBreak, r.cfg.Scores = TopKStable, TieSmall, ScoreNative
	return nil
}

// offload checks HiSparse (dispatch 16, 18).
func (r *resolver) offload() error {
	if !r.policy.HiSparse {
		return nil
	}
	if r.policy.Catalog == CatalogSparrow {
		return &Error{Code: E14, Asked: "HiSparse in the catalogue sparrow", Supported: "the cache in device memory",
			Try: "no HiSparse"}
	}
	if r.policy.RadixCache {
		return &Error{Code: E14, Asked: "HiSparse with the radix cache", Supported: "HiSparse without prefix sharing",
			Try: "the radix cache off"}
	}
	want := FlashMLASparse
	switch {
	case r.hw.Arch.AMD():
		want = TileLang
	case r.kv == FP8E4M3:
		want = FlashMLAKV
	}
	if !r.model.v4() && (r.cfg.Prefill != want || r.cfg.Decode != want) {
		return &Error{Code: E14, Asked: fmt.Sprintf("HiSparse with prefill %s and decode %s over %s", r.cfg.Prefill,
			r.cfg.Decode, r.kv),
			Supported: fmt.Sprintf("%s for both over %s on %s", want, r.kv, r.hw.Arch),
			Try:       fmt.Sprintf("--prefill %s --decode %s", want, want)}
	}
	r.cfg.HiSparse = true
	return nil
}

// v4Prefill checks the wishes that only V4 prompts know (dispatch 13). Where
// the sparse prefill was switched off for a cause, asking for it is refused,
// never answered by a size rule.
func (r *resolver) v4Prefill() error {
	p := r.policy
	if !r.model.v4() {
		return nil
	}
	if p.V4Q8 && r.cfg.Prefill != FlashMLASparseQ8 {
		return &Error{Code: E02, Asked: fmt.Sprintf("the FP8 sparse prefill of %s on %s with prefill %s",
			r.model.Family, r.hw.Arch, r.cfg.Prefill),
			Supported: "it on sm90 in the catalogue public", Try: "the bf16 sparse prefill"}
	}
	ours := p.Catalog == CatalogSparrow
	if ours && p.V4Schedule != ScheduleUnset {
		return &Error{Code: E02,
			Asked:     fmt.Sprintf("the schedule kernel %q in the catalogue sparrow", p.V4Schedule),
			Supported: "no schedule kernel: none of its kernels needs a schedule", Try: "no --v4-schedule"}
	}
	flat := r.cat.entry(r.cfg.Prefill).gathers.has(r.cfg.Layout)
	if p.V4SparsePrefill == SparsePrefillOn && !flat {
		return &Error{Code: E02, Asked: fmt.Sprintf("the sparse prefill of %s with prefill %s on %s", r.model.Family,
			r.cfg.Prefill, r.hw.Arch),
			Supported: "it on sm90 and sm100 without context parallelism or deterministic mode",
			Try:       "the sparse prefill off"}
	}
	if p.V4SparsePrefill == SparsePrefillOff && flat {
		return &Error{Code: E02, Asked: fmt.Sprintf("prefill %s with the sparse prefill off", r.cfg.Prefill),
			Supported: r.cat.names(PhaseDecode, r.model), Try: fmt.Sprintf("--prefill %s", r.cfg.Decode)}
	}
	r.cfg.SparsePrefill = SparsePrefillOff
	if flat && ours {
		r.cfg.SparsePrefill = SparsePrefillOn
	} else if flat {
		r.cfg.SparsePrefill = cmp.Or(p.V4SparsePrefill, SparsePrefillOn)
	}
	if !ours {
		r.schedule()
	}
	if r.cfg.MaxRunning == 0 && p.Catalog == CatalogPublic {
		r.cfg.MaxRunning = 256
	}
	return nil
}

// schedule settles the kernel that plans V4's paged scores (dispatch 13): the
// engine's own unless size decides, and none off CUDA.
func (r *resolver) schedule() {
	c, p := &r.cfg, r.policy
	switch {
	case !r.hw.Arch.CUDA():
	case r.hw.Arch.sm12x() && r.model.IndexFP4:
		c.Schedule = ScheduleLibrary
		r.reason("dispatch 13", "schedule by the library: four-bit keys on %s are split otherwise", r.hw.Arch)
	case p.V4Schedule != ScheduleUnset:
		c.Schedule = p.V4Schedule
		r.reason("dispatch 13", "schedule kernel %s: asked for", c.Schedule)
	case p.V4SparsePrefill != SparsePrefillAuto:
		c.Schedule = ScheduleOwn
		r.reason("dispatch 13", "schedule by the engine's own kernel, which holds any number of lengths")
	}
}

// determinism checks that every choice is stable (dispatch 5, 18).
func (r *resolver) determinism() error {
	p := r.policy
	ours := p.Catalog == CatalogSparrow
	r.cfg.SplitsFixed = p.Deterministic || p.AutomaticSplits == SwitchOff || ours && p.AutomaticSplits != SwitchOn
	if ours && !p.Deterministic && p.AutomaticSplits == SwitchOn {
		r.notice(NoticeWarning, "design 2",
			"splits by load: the last bits of a row may depend on what else is in its batch")
	}
	if !p.Deterministic {
		return nil
	}
	refuse := func(asked, supported, try string) error {
		return &Error{Code: E13, Asked: "deterministic mode with " + asked, Supported: supported, Try: try}
	}
	if p.AutomaticSplits == SwitchOn {
		return refuse("splits chosen by load", "fixed splits", "automatic splits off")
	}
	for _, k := range []Kernel{r.cfg.Prefill, r.cfg.Decode} {
		if r.cat.entry(k).loadSplits {
			return refuse(fmt.Sprintf("%s, which splits the keys by load", k), "kernels whose splits can be fixed",
				r.nearestFixed())
		}
	}
	if p.Catalog == CatalogPublic && (r.cfg.TopK != TopKFlashInfer || r.cfg.TieBreak == TieNone) {
		return refuse(fmt.Sprintf("selection by %s without a tie break", r.cfg.TopK), "flashinfer with a tie break",
			"selection by flashinfer, tie break small")
	}
	if ours {
		if k := autoTarget(&r.cfg); k != r.cfg.Decode {
			return refuse(fmt.Sprintf("prefill %s and decode %s, which round differently", k, r.cfg.Decode),
				"one kernel for both", fmt.Sprintf("--prefill %s --decode %s", r.cfg.Decode, r.cfg.Decode))
		}
	}
	r.cfg.Deterministic = true
	r.reason("dispatch 5", "deterministic: the dense form is off, splits are fixed, ties go to the %s position",
		r.cfg.TieBreak)
	return nil
}

// nearestFixed is a pair whose splits can be fixed.
func (r *resolver) nearestFixed() string {
	all := r.legalPairs(len(r.cat.entries)*len(r.cat.entries), pair{})
	i := slices.IndexFunc(all, func(p pair) bool {
		return !r.cat.entry(p.prefill).loadSplits && !r.cat.entry(p.decode).loadSplits
	})
	if i < 0 {
		return "--hw sm90"
	}
	return fmt.Sprintf("--prefill %s --decode %s", all[i].prefill, all[i].decode)
}
