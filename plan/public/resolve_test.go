package public

import (
	"slices"
	"strings"
	"testing"

	"sparrow/plan"
)

// TestPublicResolution checks cases 1 to 19 in section 20 of the dispatch spec.
func TestPublicResolution(t *testing.T) {
	public := func(hw string, tweaks ...tweak) *setup { return newSetup(t, hw, tweaks...) }
	for _, c := range []struct {
		name            string
		s               *setup
		kv              plan.DType
		prefill, decode plan.Kernel
		layout          plan.Layout
		page            int
	}{
		{"01 hopper with nothing set takes bf16", public("sm90"), plan.BF16, plan.FlashMLASparse, plan.FA3,
			plan.BF16Row1152, 64},
		{"02 hopper with fp8 takes flashmla_kv", public("sm90", kv("fp8")), plan.FP8E4M3, plan.FlashMLAKV,
			plan.FlashMLAKV, plan.FP8Row656,
			64},
		{"03 blackwell with nothing set takes fp8 and trtllm", public("sm100"), plan.FP8E4M3, plan.TRTLLM, plan.TRTLLM,
			plan.FP8Row576, 64},
		{"04 blackwell with bf16 mixes kernels", public("sm100", kv("bf16")), plan.BF16, plan.FlashMLASparse,
			plan.TRTLLM, plan.BF16Row1152,
			64},
		{"05 amd with fp8 takes tilelang and page 64 with preshuffle", public("gfx95", kv("fp8")), plan.FP8E4M3,
			plan.TileLang,
			plan.TileLang, plan.FP8Row576, 64},
		{"05 amd without preshuffle takes page 1",
			public("gfx95", kv("fp8"), func(s *setup) { s.hw.Preshuffle = false }), plan.FP8E4M3, plan.TileLang,
			plan.TileLang,
			plan.FP8Row576, 1},
		{"06 workstation glm takes flashinfer", public("sm120", family(t, "glm-5")), plan.FP8E4M3,
			plan.FlashInferSparseMLA,
			plan.FlashInferSparseMLA, plan.FP8Row656, 64},
		{"08 ampere runs the reference when asked", public("sm80", kv("bf16"), kernelsOf("reference", "reference")),
			plan.BF16, plan.Reference, plan.Reference, plan.BF16Row1152, 64},
		{"08 a reference on one side is enough", public("sm80", kv("bf16"), kernelsOf("reference", "")), plan.BF16,
			plan.Reference, plan.Reference, plan.BF16Row1152, 64},
		{"09 blackwell stores raw rows under a block prefill",
			public("sm100", kv("fp8"), kernelsOf("flashmla_kv", "trtllm")), plan.FP8E4M3, plan.FlashMLAKV, plan.TRTLLM,
			plan.FP8Row576, 64},
		{"16 torch selection without fusion",
			public("sm90", wish(func(p *Policy) { p.TopK, p.Fused = TopKTorch, plan.SwitchOff })), plan.BF16,
			plan.FlashMLASparse, plan.FA3,
			plan.BF16Row1152, 64},
		{"18 v4 forces page 256", public("sm90", family(t, "deepseek_v4"), wish(func(p *Policy) { p.Page = 64 })),
			plan.FP8E4M3, plan.FlashMLASparse, plan.FlashMLAKV, plan.V4Row584, 256},
		{"19 glm-5.2 with overlap and carry",
			public("sm90", family(t, "glm-5.2"), wish(func(p *Policy) { p.TBO, p.CarryIndices = true, true })),
			plan.BF16,
			plan.FlashMLASparse, plan.FA3, plan.BF16Row1152, 64},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.s.resolve(t)
			want(t, "kv", cfg.KV, c.kv)
			want(t, "prefill", cfg.Prefill, c.prefill)
			want(t, "decode", cfg.Decode, c.decode)
			want(t, "layout", cfg.Layout, c.layout)
			want(t, "page", cfg.Page, c.page)
			want(t, "runnable", cfg.Runnable, false)
		})
	}
	cp := func(kind CPKind) tweak { return wish(func(p *Policy) { p.CP = CP{kind, 2} }) }
	for _, c := range []struct {
		name string
		s    *setup
		code plan.Code
	}{
		{"07 workstation deepseek has no kernel", public("sm120", kv("fp8")), plan.E01},
		{"08 ampere has no kernel", public("sm80", kv("bf16")), plan.E01},
		{"10 raw prefill with block decode", public("sm100", kv("fp8"), kernelsOf("trtllm", "flashmla_kv")), plan.E04},
		{"11 trtllm on hopper", public("sm90", kv("fp8"), kernelsOf("trtllm", "")), plan.E02},
		{"12 q8 prefill over bf16", public("sm90", kv("bf16"), kernelsOf("flashmla_sparse_q8", "")), plan.E03},
		{"13 q8 as decode", public("sm90", kv("fp8"), kernelsOf("", "flashmla_sparse_q8")), plan.E02},
		{"13 auto as decode", public("sm90", kv("fp8"), kernelsOf("", "flashmla_auto")), plan.E02},
		{"14 tilelang over fp8 on hopper", public("sm90", kv("fp8"), kernelsOf("tilelang", "")), plan.E03},
		{"14 fa3 over fp8", public("sm90", kv("fp8"), kernelsOf("", "fa3")), plan.E03},
		{"15 kv fp8_e5m2", public("sm90", kv("fp8_e5m2")), plan.E05},
		{"16 torch selection fused", public("sm90", wish(func(p *Policy) {
			p.TopK, p.Fused = TopKTorch,
				plan.SwitchOn
		})),
			plan.E09},
		{"17 tree drafts", public("sm90",
			wish(func(p *Policy) { p.Speculation = plan.Speculation{Steps: 3, Branches: 4, Tokens: 4} })), plan.E11},
		{"18 v4 with zigzag parallelism", public("sm90", family(t, "deepseek_v4"), cp(CPZigzag)), plan.E10},
		{"19 glm-5.2 with overlap and no carry",
			public("sm90", family(t, "glm-5.2"), wish(func(p *Policy) { p.TBO = true })), plan.E12},
	} {
		t.Run(c.name, func(t *testing.T) {
			e := c.s.refused(t, c.code)
			if e.Asked == "" || e.Supported == "" || e.Try == "" {
				t.Errorf("incomplete message: %v", e)
			}
		})
	}
}

func TestPublicMessagesNameWhatTheSpecAsksFor(t *testing.T) {
	t.Run("E01 lists the kernels tried with a reason each", func(t *testing.T) {
		e := newSetup(t, "sm120", kv("fp8")).refused(t, plan.E01)
		for _, k := range []plan.Kernel{plan.TRTLLM, plan.FlashMLAKV, plan.FlashMLASparse, plan.FA3,
			plan.FlashInferSparseMLA} {
			if !slices.ContainsFunc(e.Tried, func(r plan.Rejection) bool { return r.Kernel == k && r.Reason != "" }) {
				t.Errorf("%s is not among the kernels tried: %v", k, e.Tried)
			}
		}
	})
	t.Run("E04 names both layouts and two legal pairs", func(t *testing.T) {
		e := newSetup(t, "sm100", kv("fp8"), kernelsOf("trtllm", "flashmla_kv")).refused(t, plan.E04)
		for _, w := range []string{"fp8-576", "fp8-656"} {
			if !strings.Contains(e.Asked, w) {
				t.Errorf("asked %q does not name %s", e.Asked, w)
			}
		}
		want(t, "legal pairs named", strings.Count(e.Supported, "--decode"), 2)
	})
	t.Run("18 the forced page is noticed", func(t *testing.T) {
		s := newSetup(t, "sm90", family(t, "deepseek_v4"), wish(func(p *Policy) { p.Page = 64 }))
		_, notices, err := Resolve(s.hw, s.model, s.policy)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(notices, func(n plan.Notice) bool {
			return n.Level == plan.NoticeWarning && strings.Contains(n.Text, "256")
		}) {
			t.Errorf("no warning about the page in %v", notices)
		}
	})
	t.Run("53 E08 names the tensor-parallel size", func(t *testing.T) {
		e := newSetup(t, "sm90", kv("bf16"), heads(130)).refused(t, plan.E08)
		if !strings.Contains(e.Asked, "tensor-parallel") {
			t.Errorf("asked %q", e.Asked)
		}
	})
}

// A kernel that the user disabled is rejected, and the reason states that it is disabled.
func TestSparsePrefillOff(t *testing.T) {
	off := wish(func(p *Policy) { p.V4SparsePrefill = plan.SparsePrefillOff })
	for _, k := range []string{"flashmla_sparse", "flashmla_sparse_q8"} {
		e := newSetup(t, "sm90", family(t, "deepseek_v4"), off, kernelsOf(k, "")).refused(t, plan.E02)
		if strings.Contains(e.Supported, "flashmla_sparse") || !strings.Contains(e.Asked, "disabled") {
			t.Errorf("%s: %v", k, e)
		}
	}
	cfg := newSetup(t, "sm90", family(t, "deepseek_v4"), off).resolve(t)
	for _, r := range cfg.RejectedFor(plan.PhasePrefill) {
		if r.Kernel == plan.FlashMLASparse && r.Reason != "the sparse prefill was disabled" {
			t.Errorf("%s was rejected because %q", r.Kernel, r.Reason)
		}
	}
}

// TestPublicIllegalPairs checks that every pair of kernels in the list at the end of section 9 of the dispatch spec is
// refused.
func TestPublicIllegalPairs(t *testing.T) {
	for _, c := range []struct {
		name            string
		hw, kv          string
		prefill, decode string
		code            plan.Code
	}{
		{"trtllm prefill with another fp8 decode", "sm100", "fp8", "trtllm", "flashmla_kv", plan.E04},
		{"fp8 with fa3", "sm90", "fp8", "fa3", "flashmla_kv", plan.E03},
		{"fp8 with tilelang on cuda", "sm90", "fp8", "flashmla_kv", "tilelang", plan.E03},
		{"fp8 decode with flashmla_sparse", "sm90", "fp8", "flashmla_sparse", "flashmla_sparse", plan.E03},
		{"bf16 with flashmla_kv", "sm90", "bf16", "flashmla_kv", "fa3", plan.E03},
		{"q8 as decode", "sm90", "fp8", "flashmla_kv", "flashmla_sparse_q8", plan.E02},
		{"q8 off hopper", "sm100", "fp8", "flashmla_sparse_q8", "flashmla_kv", plan.E02},
		{"q8 over bf16", "sm90", "bf16", "flashmla_sparse_q8", "fa3", plan.E03},
		{"auto as decode", "sm100", "fp8", "flashmla_kv", "flashmla_auto", plan.E02},
		{"trtllm below sm100", "sm90", "bf16", "flashmla_sparse", "trtllm", plan.E02},
		{"trtllm on sm120", "sm120", "fp8", "trtllm", "trtllm", plan.E02},
		{"aiter off amd", "sm90", "bf16", "aiter", "aiter", plan.E02},
		{"fa3 on amd", "gfx95", "bf16", "fa3", "fa3", plan.E02},
		{"flashinfer outside glm", "sm120", "fp8", "flashinfer_sparse_mla", "flashinfer_sparse_mla", plan.E02},
		{"flashinfer off SM12x", "sm90", "fp8", "flashinfer_sparse_mla", "flashinfer_sparse_mla", plan.E02},
		{"q8 over raw rows", "sm100", "fp8", "flashmla_sparse_q8", "trtllm", plan.E02},
	} {
		t.Run(c.name, func(t *testing.T) {
			newSetup(t, c.hw, kv(c.kv), kernelsOf(c.prefill, c.decode)).refused(t, c.code)
		})
	}
}

// TestPublicLayouts checks every row of the layout table in section 9 of the dispatch spec.
func TestPublicLayouts(t *testing.T) {
	for _, c := range []struct {
		hw, kv          string
		prefill, decode string
		layout          plan.Layout
	}{
		{"sm90", "bf16", "flashmla_sparse", "flashmla_sparse", plan.BF16Row1152},
		{"sm90", "bf16", "fa3", "fa3", plan.BF16Row1152},
		{"sm90", "bf16", "tilelang", "tilelang", plan.BF16Row1152},
		{"sm100", "bf16", "trtllm", "trtllm", plan.BF16Row1152},
		{"sm90", "bf16", "auto", "fa3", plan.BF16Row1152},
		{"sm90", "fp8", "auto", "flashmla_kv", plan.FP8Row656},
		{"sm90", "fp8", "flashmla_sparse", "flashmla_kv", plan.FP8Row656},
		{"sm90", "fp8", "flashmla_sparse_q8", "flashmla_kv", plan.FP8Row656},
		{"sm100", "fp8", "trtllm", "trtllm", plan.FP8Row576},
		{"sm100", "fp8", "auto", "trtllm", plan.FP8Row576},
		{"sm100", "fp8", "flashmla_sparse", "trtllm", plan.FP8Row576},
		{"sm103", "", "", "", plan.FP8Row576},
		{"gfx95", "bf16", "aiter", "aiter", plan.BF16Row1152},
		{"gfx95", "fp8", "aiter", "tilelang", plan.FP8Row576},
	} {
		t.Run(c.hw+" "+c.kv+" "+c.prefill+" "+c.decode, func(t *testing.T) {
			cfg := newSetup(t, c.hw, kv(c.kv), kernelsOf(c.prefill, c.decode)).resolve(t)
			want(t, "layout", cfg.Layout, c.layout)
		})
	}
	t.Run("a side left open follows the side that was set", func(t *testing.T) {
		cfg := newSetup(t, "sm100", kv("fp8"), kernelsOf("", "flashmla_kv")).resolve(t)
		want(t, "prefill", cfg.Prefill, plan.FlashMLAKV)
		want(t, "layout", cfg.Layout, plan.FP8Row656)
	})
	t.Run("a missing build gives way to the next candidate", func(t *testing.T) {
		cfg := newSetup(t, "sm103", func(s *setup) { s.hw.Missing = []plan.Kernel{plan.TRTLLM} }).resolve(t)
		want(t, "decode", cfg.Decode, plan.FlashMLAKV)
	})
}
