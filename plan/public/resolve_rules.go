package public

import (
	"cmp"
	"fmt"

	"sparrow/plan"
)

// selection sets the kernels of top-k and of paged scores (dispatch 10, 16).
func (r *resolver) selection() error {
	c, p, arch := &r.cfg, r.policy, r.hw.Arch
	c.TopK, c.TieBreak, c.Fused = cmp.Or(p.TopK, TopKSGL), p.TieBreak, p.Fused != plan.SwitchOff
	if c.TopK == TopKTorch && c.Fused {
		return &plan.Error{Code: plan.E09, Asked: "selection by torch fused with the transform",
			Supported: "torch without fusion, sgl-kernel or flashinfer with it", Try: "--fused off"}
	}
	if c.TieBreak != TieNone && c.TopK != TopKFlashInfer {
		return &plan.Error{Code: plan.E09, Asked: fmt.Sprintf("a tie break with selection by %s", c.TopK),
			Supported: "a tie break with flashinfer", Try: "--topk flashinfer"}
	}
	usual := ScoreNative
	switch {
	case arch.CUDA():
		usual = ScoreDeepGEMM
	case arch.AMD():
		usual = ScoreAiter
	}
	switch c.Scores = cmp.Or(p.Scores, usual); {
	case c.Scores == ScoreCuteDSL && !arch.SM100Family(), c.Scores == ScoreDeepGEMM && !arch.CUDA(),
		c.Scores == ScoreAiter && !arch.AMD():
		return &plan.Error{Code: plan.E02, Asked: fmt.Sprintf("paged scores by %s on %s", p.Scores, arch),
			Supported: "deepgemm on CUDA, cutedsl on sm100, aiter on AMD", Try: "no explicit score kernel"}
	}
	return nil
}

// offload checks the setting HiSparse, offload of cached rows to the host (dispatch 16, 18).
func (r *resolver) offload() error {
	if !r.policy.HiSparse {
		return nil
	}
	if r.policy.RadixCache {
		return &plan.Error{Code: plan.E14, Asked: "HiSparse with the radix cache",
			Supported: "HiSparse without prefix sharing", Try: "the radix cache off"}
	}
	want, kv := plan.FlashMLASparse, r.cfg.KV
	switch {
	case r.hw.Arch.AMD():
		want = plan.TileLang
	case kv == plan.FP8E4M3:
		want = plan.FlashMLAKV
	}
	if !r.model.V4() && (r.cfg.Prefill != want || r.cfg.Decode != want) {
		return &plan.Error{Code: plan.E14, Asked: fmt.Sprintf("HiSparse with prefill %s and decode %s over %s",
			r.cfg.Prefill, r.cfg.Decode, kv),
			Supported: fmt.Sprintf("%s for both over %s on %s", want, kv, r.hw.Arch),
			Try:       fmt.Sprintf("--prefill %s --decode %s", want, want)}
	}
	return nil
}

// v4Prefill sets the fields of V4 prompts (dispatch 13). If the sparse prefill is requested but not available, it
// returns an error.
func (r *resolver) v4Prefill() error {
	c, p := &r.cfg, r.policy
	if !r.model.V4() {
		return nil
	}
	gathers := catalogue.Entry(c.Prefill).Gathers.Has(c.Layout)
	if p.V4SparsePrefill == plan.SparsePrefillOn && !gathers {
		return &plan.Error{Code: plan.E02, Asked: fmt.Sprintf("the sparse prefill of %s with prefill %s on %s",
			r.model.Family, c.Prefill, r.hw.Arch),
			Supported: "the sparse prefill on sm90 and sm100 without context parallelism",
			Try:       "--v4-sparse-prefill off"}
	}
	c.SparsePrefill = plan.SparsePrefillOff
	if gathers {
		c.SparsePrefill = cmp.Or(p.V4SparsePrefill, plan.SparsePrefillOn)
	}
	c.MaxRunning = cmp.Or(c.MaxRunning, 256)
	r.schedule()
	return nil
}

// schedule sets the kernel that plans V4's paged scores (dispatch 13): the engine's own kernel, unless the number of
// rows decides, and none without CUDA.
func (r *resolver) schedule() {
	c, p := &r.cfg, r.policy
	switch {
	case !r.hw.Arch.CUDA():
	case r.hw.Arch.SM12x() && r.model.IndexFP4:
		c.Schedule = plan.ScheduleLibrary
		r.Because("dispatch 13", "schedule by the library: four-bit keys on %s are split otherwise", r.hw.Arch)
	case p.V4Schedule != plan.ScheduleUnset:
		c.Schedule = p.V4Schedule
		r.Because("dispatch 13", "schedule kernel %s: requested by the user", c.Schedule)
	case p.V4SparsePrefill != plan.SparsePrefillAuto || r.hw.Arch.SM12x():
		c.Schedule = plan.ScheduleOwn
		r.Because("dispatch 13", "schedule by the engine's own kernel, which holds any number of lengths")
	}
}

// determinism checks, in deterministic mode, that no choice depends on the batch (dispatch 5, 18).
func (r *resolver) determinism() error {
	c, p := &r.cfg, r.policy
	c.SplitsFixed = p.Deterministic || p.AutomaticSplits == plan.SwitchOff
	if !p.Deterministic {
		return nil
	}
	refuse := func(asked, supported, try string) error {
		return &plan.Error{Code: plan.E13, Asked: "deterministic mode with " + asked, Supported: supported, Try: try}
	}
	if p.AutomaticSplits == plan.SwitchOn {
		return refuse("splits chosen by load", "fixed splits", "--automatic-splits off")
	}
	for _, k := range []plan.Kernel{c.Prefill, c.Decode} {
		if loadSplits.Has(k) {
			return refuse(fmt.Sprintf("%s, which splits the keys by load", k), "kernels whose splits can be fixed",
				r.nearestFixed()+" "+stableSelection)
		}
	}
	if c.TopK != TopKFlashInfer || c.TieBreak == TieNone {
		return refuse(fmt.Sprintf("selection by %s without a tie break", c.TopK), "flashinfer with a tie break",
			stableSelection)
	}
	c.Deterministic = true
	r.Because("dispatch 5", "deterministic: the dense form is off, splits are fixed, ties go to the %s position",
		c.TieBreak)
	return nil
}

// stableSelection holds the flags with which the selection does not depend on the batch.
const stableSelection = "--topk flashinfer --tie-break small"

// nearestFixed returns a pair whose splits can be fixed.
func (r *resolver) nearestFixed() string {
	for _, p := range r.chooser().LegalPairs() {
		if !loadSplits.Has(p.Prefill) && !loadSplits.Has(p.Decode) {
			return fmt.Sprintf("--prefill %s --decode %s", p.Prefill, p.Decode)
		}
	}
	return "--hw sm90"
}
