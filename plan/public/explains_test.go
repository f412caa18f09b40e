package public

import (
	"strings"
	"testing"

	"sparrow/plan"
)

func TestConfigurationExplainsItself(t *testing.T) {
	cfg := newSetup(t, "sm90").resolve(t)
	reasons := map[plan.Kernel]string{}
	for _, r := range cfg.Rejected {
		if r.Phase == plan.PhaseDecode {
			reasons[r.Kernel] = r.Reason
		}
	}
	for k, text := range map[plan.Kernel]string{
		plan.TRTLLM:           "runs only on sm100, sm103, not on sm90",
		plan.FlashMLAKV:       "cannot read rows of the layout bf16-1152",
		plan.FlashMLASparseQ8: "does not support decode",
		plan.TileLang:         "fits, but fa3 is preferred",
		plan.Reference:        "used only if a flag selects it",
	} {
		if !strings.Contains(reasons[k], text) {
			t.Errorf("%s was rejected because %q, want %q", k, reasons[k], text)
		}
	}
	if _, ok := reasons[plan.FA3]; ok {
		t.Error("the chosen kernel is among the rejected")
	}
	t.Run("splits are fixed if that is requested", func(t *testing.T) {
		for wanted, fixed := range map[plan.Switch]bool{plan.SwitchUnset: false, plan.SwitchOff: true,
			plan.SwitchOn: false} {
			cfg := newSetup(t, "sm90", wish(func(p *Policy) { p.AutomaticSplits = wanted })).resolve(t)
			want(t, wanted.String(), only(t, build(t, cfg, decode(5))).SplitsFixed, fixed)
		}
	})
	t.Run("speculation is settled at start", func(t *testing.T) {
		cfg := newSetup(t, "sm90",
			wish(func(p *Policy) { p.Speculation = plan.Speculation{Steps: 3, Branches: 1, Tokens: 7} })).resolve(t)
		want(t, "n", cfg.N, 4)
		want(t, "mixed", cfg.MixedAllowed, false)
		want(t, "running", cfg.MaxRunning, 48)
		want(t, "running v4", newSetup(t, "sm90", family(t, "deepseek_v4")).resolve(t).MaxRunning, 256)
	})
	t.Run("a number of running sequences is kept", func(t *testing.T) {
		most := wish(func(p *Policy) { p.Running = 7 })
		for name, s := range map[string]*setup{"v32": newSetup(t, "sm90", most),
			"v4":     newSetup(t, "sm90", most, family(t, "deepseek_v4")),
			"drafts": newSetup(t, "sm90", most, drafts(4))} {
			want(t, name, s.resolve(t).MaxRunning, 7)
		}
	})
	t.Run("a rejection names a layout only where there is one", func(t *testing.T) {
		for _, r := range newSetup(t, "sm100").resolve(t).Rejected {
			if r.Kernel == plan.FlashMLASparse && r.Phase == plan.PhaseDecode {
				want(t, "reason", r.Reason, "it cannot read fp8_e4m3 rows in decode")
			}
		}
	})
	t.Run("a model without a dense form has no other reason against it", func(t *testing.T) {
		for _, s := range []*setup{newSetup(t, "sm120", family(t, "deepseek_v4")),
			newSetup(t, "sm90", family(t, "deepseek_v4"), wish(func(p *Policy) {
				p.Deterministic, p.TopK, p.TieBreak = true, TopKFlashInfer, TieSmall
			}))} {
			want(t, "reasons", strings.Join(s.resolve(t).DenseAgainst, "; "), "deepseek_v4 has no dense form")
		}
	})
	t.Run("hisparse decode is not fused", func(t *testing.T) {
		cfg := newSetup(t, "sm90", kv("fp8"), wish(func(p *Policy) { p.HiSparse = true })).resolve(t)
		want(t, "decode", only(t, build(t, cfg, decode(5))).FusedTopK, false)
		want(t, "prefill", only(t, build(t, cfg, extend(5000))).FusedTopK, true)
		want(t, "dense", only(t, build(t, cfg, extend(50))).Form, plan.FormSparseMLA)
	})
	t.Run("seeding a separate decode worker is not fused", func(t *testing.T) {
		cfg := newSetup(t, "sm90", family(t, "glm-5.2"),
			wish(func(p *Policy) { p.Role = RolePrefill })).resolve(t)
		b := extend(5000)
		want(t, "without seed", only(t, build(t, cfg, b)).FusedTopK, true)
		b.NeedSeed = true
		want(t, "with seed", only(t, build(t, cfg, b)).FusedTopK, false)
	})
	t.Run("aiter repeats few heads", func(t *testing.T) {
		cfg := newSetup(t, "gfx95", heads(8), kernelsOf("aiter", "aiter")).resolve(t)
		s := only(t, build(t, cfg, decode(5)))
		want(t, "heads", s.KernelHeads, 16)
		want(t, "repeat", s.HeadRepeat, 2)
	})
	t.Run("zigzag splits one long request only", func(t *testing.T) {
		cfg := newSetup(t, "sm90", wish(func(p *Policy) { p.CP = CP{CPZigzag, 4} })).resolve(t)
		want(t, "one request", only(t, build(t, cfg, extend(801))).KernelRows, 201)
		want(t, "too short", only(t, build(t, cfg, extend(7))).KernelRows, 7)
		want(t, "two requests", only(t, build(t, cfg, extend(800, 800))).KernelRows, 1600)
	})
	t.Run("index heads are padded", func(t *testing.T) {
		cfg := newSetup(t, "sm100", func(s *setup) { s.model.IndexHeads = 4 }).resolve(t)
		want(t, "blackwell", only(t, build(t, cfg, decode(5))).Indexer.Heads, 8)
	})
	t.Run("a dense plan selects nothing", func(t *testing.T) {
		public := newSetup(t, "sm90", kv("fp8")).resolve(t)
		s := only(t, build(t, public, extend(512)))
		if s.NeedIndices || s.Transform != plan.TransformNone || s.Indexer.Kind != plan.IndexerKOnly {
			t.Errorf("public: %+v", s)
		}
	})
	t.Run("later changes to the inputs do not reach the configuration", func(t *testing.T) {
		s := newSetup(t, "sm90", wish(func(p *Policy) { p.PipelineCuts = []int{3} }))
		cfg := s.resolve(t)
		s.policy.PipelineCuts[0] = 77
		want(t, "cut", cfg.Wishes.PipelineCuts[0], 3)
	})
}
