package public

import (
	"testing"

	"sparrow/plan"
)

// TestStartRefusals checks the refusals of Resolve that the numbered cases of the dispatch spec do not cover.
func TestStartRefusals(t *testing.T) {
	public := func(hw string, tweaks ...tweak) *setup { return newSetup(t, hw, tweaks...) }
	p := wish
	v4 := family(t, "deepseek_v4")
	for _, c := range []struct {
		name string
		s    *setup
		code plan.Code
	}{
		{"page 32 on cuda", public("sm90", p(func(p *Policy) { p.Page = 32 })), plan.E06},
		{"page 24 with preshuffle", public("gfx95", p(func(p *Policy) { p.Page = 24 })), plan.E06},
		{"page 64 without preshuffle", public("gfx95", func(s *setup) { s.hw.Preshuffle = false; s.policy.Page = 64 }),
			plan.E06},
		{"tilelang with another index_topk",
			public("gfx95", func(s *setup) { s.model.K = 1024 }, kernelsOf("tilelang", "tilelang")), plan.E07},
		{"flashmla_kv with an odd index_topk", public("sm90", kv("fp8"), func(s *setup) { s.model.K = 2000 }),
			plan.E07},
		{"12 heads with aiter", public("gfx95", heads(12), kernelsOf("aiter", "aiter")), plan.E08},
		{"48 heads with q8", public("sm90", kv("fp8"), heads(48), kernelsOf("flashmla_sparse_q8", "")), plan.E08},
		{"a tie break without flashinfer", public("sm90", p(func(p *Policy) { p.TieBreak = TieSmall })), plan.E09},
		{"cutedsl off sm100", public("sm90", p(func(p *Policy) { p.Scores = ScoreCuteDSL })), plan.E02},
		{"context parallelism without strategy", public("sm90", p(func(p *Policy) { p.CP.Size = 2 })), plan.E10},
		{"context parallelism over 16 ranks", public("sm90", p(func(p *Policy) { p.CP = CP{CPInterleave, 16} })),
			plan.E10},
		{"context parallelism with attention split",
			public("sm90", p(func(p *Policy) { p.CP, p.AttentionTP = CP{CPZigzag, 2}, 2 })), plan.E10},
		{"interleave with data parallelism", public("sm90", p(func(p *Policy) { p.CP, p.DP = CP{CPInterleave, 2}, 2 })),
			plan.E10},
		{"context parallelism on a decode worker",
			public("sm90", p(func(p *Policy) { p.CP, p.Role = CP{CPInterleave, 2}, RoleDecode })), plan.E10},
		{"q8 with context parallelism",
			public("sm90", kv("fp8"), kernelsOf("flashmla_sparse_q8", ""),
				p(func(p *Policy) { p.CP = CP{CPInterleave, 2} })), plan.E10},
		{"a pipeline cut on a shared layer",
			public("sm90", family(t, "glm-5.2"), p(func(p *Policy) { p.PipelineCuts = []int{39} })), plan.E12},
		{"deterministic with unstable selection", public("sm90", p(func(p *Policy) { p.Deterministic = true })),
			plan.E13},
		{"deterministic with a kernel that splits by load",
			public("sm100", p(func(p *Policy) {
				p.Deterministic, p.TopK, p.TieBreak = true, TopKFlashInfer, TieSmall
			})), plan.E13},
		{"hisparse with the radix cache", public("sm90", p(func(p *Policy) { p.HiSparse, p.RadixCache = true, true })),
			plan.E14},
		{"hisparse with another kernel",
			public("sm90", kernelsOf("fa3", "fa3"), p(func(p *Policy) { p.HiSparse = true })), plan.E14},
		{"a missing build", public("sm103", kernelsOf("trtllm", "trtllm"), func(s *setup) {
			s.hw.Missing = []plan.Kernel{plan.TRTLLM}
		}), plan.E16},
		{"the fp8 prefill of v4 off hopper", public("sm100", v4, p(func(p *Policy) { p.V4Q8 = true })), plan.E02},
		{"the sparse prefill of v4 on amd", public("gfx95", v4,
			p(func(p *Policy) { p.V4SparsePrefill = plan.SparsePrefillOn })), plan.E02},
		{"the sparse prefill of v4 with parallelism", public("sm90", v4, p(func(p *Policy) {
			p.V4SparsePrefill,
				p.CP = plan.SparsePrefillOn, CP{CPInterleave, 2}
		})), plan.E02},
		{"v4 on ampere", public("sm80", v4), plan.E01},
		{"an unknown selection", public("sm90", p(func(p *Policy) { p.TopK = "stable" })), plan.E09},
		{"an unknown tie break", public("sm90", p(func(p *Policy) { p.TieBreak = "middle" })), plan.E09},
		{"unknown scores", public("sm90", p(func(p *Policy) { p.Scores = "abacus" })), plan.E02},
		{"an unknown strategy", public("sm90", p(func(p *Policy) { p.CP = CP{"random", 2} })), plan.E10},
		{"an unknown role", public("sm90", p(func(p *Policy) { p.Role = "guest" })), plan.E10},
	} {
		t.Run(c.name, func(t *testing.T) { c.s.refused(t, c.code) })
	}
	for _, c := range []struct {
		name string
		s    *setup
	}{
		{"hopper without its shared memory", public("sm90", func(s *setup) { s.hw.SmemOptin = 0 })},
		{"negative cap", public("sm90", p(func(p *Policy) { p.ScoreCap = -1 }))},
		{"a pipeline cut beyond the model", public("sm90", p(func(p *Policy) { p.PipelineCuts = []int{61} }))},
		{"no heads", public("sm90", heads(0))},
	} {
		t.Run("bad input: "+c.name, func(t *testing.T) {
			if _, _, err := Resolve(c.s.hw, c.s.model, c.s.policy); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestBatchRefusals checks that batches that contradict the rules for whole batches are refused.
func TestBatchRefusals(t *testing.T) {
	theirs := newSetup(t, "sm90", kv("fp8")).resolve(t)
	onCPU := newSetup(t, "cpu", kernelsOf("reference", "reference")).resolve(t)
	speculating := newSetup(t, "sm90", drafts(2)).resolve(t)
	unsliced := newSetup(t, "sm90", kv("fp8"), wish(func(p *Policy) { p.Slicing = plan.SwitchOff })).resolve(t)
	for _, c := range []struct {
		name string
		cfg  Config
		b    plan.Batch
		code plan.Code
	}{
		{"mixed while speculating", speculating, plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(5, 0)), plan.E20},
		{"verify in a mixed batch", theirs, plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(5, 0),
			plan.VerifyRequest(2, 5)), plan.E20},
		{"verify widths that differ", theirs,
			plan.NewBatch(plan.ModeVerify, plan.VerifyRequest(2, 5), plan.VerifyRequest(3, 5)), plan.E26},
		{"a captured decode on a cpu", onCPU, inGraph(plan.GraphCapture, decode(5)), plan.E25},
		{"a replayed decode on a cpu", onCPU, inGraph(plan.GraphReplay, decode(5)), plan.E25},
		{"a piecewise prompt on a cpu", onCPU, inGraph(plan.GraphPiecewise, extendOver(5, 0)), plan.E25},
		{"a captured prompt", theirs, inGraph(plan.GraphCapture, extendOver(5, 0)), plan.E25},
		{"a piecewise decode", theirs, inGraph(plan.GraphPiecewise, decode(5)), plan.E25},
		{"more rows than a launch takes with slicing off", unsliced, extendOver(12000, 5000), plan.E24},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Build(c.cfg, c.b)
			wantError(t, err, c.code)
			if p != nil {
				t.Error("a plan came with the error")
			}
		})
	}
}
