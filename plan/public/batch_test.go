package public

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/plan"
)

// facts holds the columns that most cases in section 20 of the dispatch spec expect. Launches or heads of zero are not
// checked.
type facts struct {
	form      plan.Form
	kernel    plan.Kernel
	convert   plan.Convert
	transform plan.Transform
	indexer   plan.IndexerKind
	heads     int
	launches  []int
}

func (f facts) check(t *testing.T, s *plan.Segment) {
	t.Helper()
	want(t, "form", s.Form, f.form)
	want(t, "kernel", s.Kernel, f.kernel)
	want(t, "convert", s.Convert, f.convert)
	want(t, "transform", s.Transform, f.transform)
	want(t, "indexer", s.Indexer.Kind, f.indexer)
	if f.heads != 0 {
		want(t, "heads", s.KernelHeads, f.heads)
	}
	if f.launches != nil {
		wantInts(t, "launches", launchRows(s), f.launches)
	}
}

// TestPublicBatches checks the cases 20 to 54 in section 20 of the dispatch spec that fit a row of the table; the other
// cases have their own tests below.
func TestPublicBatches(t *testing.T) {
	public := func(hw string, tweaks ...tweak) *setup { return newSetup(t, hw, tweaks...) }
	one := public("sm90")
	two := public("sm90", kv("fp8"))
	three := public("sm100")
	six := public("sm120", family(t, "glm-5"))
	gather := public("sm90", kv("fp8"), kernelsOf("flashmla_sparse", "flashmla_kv"))
	auto100 := public("sm100", kv("fp8"), kernelsOf("flashmla_auto", "flashmla_kv"))
	v4 := public("sm90", family(t, "deepseek_v4"))
	v4Off := public("sm90", family(t, "deepseek_v4"),
		wish(func(p *Policy) { p.V4SparsePrefill = plan.SparsePrefillOff }))
	v4Auto := public("sm90", family(t, "deepseek_v4"),
		wish(func(p *Policy) { p.V4SparsePrefill = plan.SparsePrefillAuto }))
	amd := public("gfx95", kv("fp8"))
	cp := wish(func(p *Policy) { p.CP = CP{CPInterleave, 2} })
	deterministic := wish(func(p *Policy) { p.Deterministic, p.TopK, p.TieBreak = true, TopKFlashInfer, TieSmall })
	threshold := wish(func(p *Policy) { p.DenseThreshold = 4096 })
	mixed := plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(9000, 0), plan.DecodeRequest(500))

	for _, c := range []struct {
		name string
		s    *setup
		b    plan.Batch
		want facts
	}{
		{"20 short prompts are dense without conversion", one, extend(512, 1024),
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertNone, plan.TransformNone, plan.IndexerKOnly, 16,
				[]int{1536}}},
		{"21 a cached prefix is gathered as bf16", two, extendOver(256, 256),
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertGatherBF16, plan.TransformNone, plan.IndexerKOnly,
				0, nil}},
		{"22 no prefix needs no gather", two, extend(512),
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertNone, plan.TransformNone, plan.IndexerKOnly, 0,
				nil}},
		{"23 raw rows are gathered and cast", three, extendOver(256, 256),
			facts{plan.FormDenseMHA, plan.TRTLLMRagged, plan.ConvertGatherBF16, plan.TransformNone, plan.IndexerKOnly,
				0, nil}},
		{"24 the threshold is inclusive", one, extend(2048),
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertNone, plan.TransformNone, plan.IndexerKOnly, 0,
				nil}},
		{"24 one more key is sparse", one, extend(2049),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged,
				64, nil}},
		{"25 a batch above capacity is sparse without scores", one,
			plan.Batch{Mode: plan.ModeExtend, Requests: repeat(70, plan.ExtendRequest(2000, 0))},
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 64, nil}},
		{"26 an architecture without dense form", six, extend(100),
			facts{plan.FormSparseMLA, plan.FlashInferSparseMLA, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 16, nil}},
		{"27 context parallelism never skips scores", public("sm90", cp), extend(1500),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged,
				64, []int{750}}},
		{"28 a piecewise graph is never dense", one, inGraph(plan.GraphPiecewise, extend(100)),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 64, nil}},
		{"29 a higher threshold is dense above index_topk", public("sm90", threshold), extend(3000),
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertNone, plan.TransformNone, plan.IndexerKOnly, 0,
				nil}},
		{"30 deterministic mode is never dense", public("sm90", deterministic), extend(100),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 64, nil}},
		{"31 a sparse prefill over fp8 reads new latents", gather, extend(8192),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformRagged, plan.IndexerRagged,
				64, []int{8192}}},
		{"32 a sparse prefill over fp8 gathers a prefix", gather, extendOver(4096, 4096),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerRagged, 64, []int{4096}}},
		{"33 its decode is paged", gather, decode(9000, 12),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit,
				64, nil}},
		{"33 its verify is paged", public("sm90", kv("fp8"), kernelsOf("flashmla_sparse", "flashmla_kv"), drafts(4)),
			verify(9000, 12), facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerPagedSplit, 64,
				nil}},
		{"34 a mixed batch is ragged", gather, mixed,
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerRagged, 64, nil}},
		{"35 auto gathers when keys are few per row", auto100, extendOver(4096, 1000000-4096),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerRagged, 128, nil}},
		{"36 auto stays paged at equality", auto100, extendOver(4096, 2097152-4096),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged, 64,
				nil}},
		{"36 auto stays paged for mixed batches", auto100,
			plan.NewBatch(plan.ModeMixed, plan.ExtendRequest(4096, 1000), plan.DecodeRequest(9)),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged, 64,
				nil}},
		{"38 auto over fp8 on hopper is paged", public("sm90", kv("fp8"), kernelsOf("auto", "flashmla_kv")),
			extend(8192), facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerRagged, 64, nil}},
		{"38 auto over bf16 on hopper is flat", public("sm90", kv("bf16"), kernelsOf("auto", "fa3")), extend(8192),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged,
				64, nil}},
		{"39 decode on hopper", one, decode(10, 3000, 2048),
			facts{plan.FormSparseMLA, plan.FA3, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				[]int{3}}},
		{"40 verify on blackwell is native", public("sm100", drafts(4)), verify(100, 5000),
			facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedNative, 16,
				[]int{8}}},
		{"41 verify on hopper is split", public("sm90", kv("fp8"), drafts(4)), verify(100, 5000),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit,
				64, []int{8}}},
		{"42 draft rows are split", public("sm100", drafts(4)), draft(104),
			facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				[]int{4}}},
		{"43 a padded draft request", public("sm100", drafts(2)), draft(0),
			facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				[]int{2}}},
		{"44 a paged prefill is cut at the schedule limit", two, extend(12000),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged, 64,
				[]int{11622, 378}}},
		{"45 trtllm is cut at the grid limit", three, extend(70000),
			facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged, 16,
				[]int{65535, 4465}}},
		{"47 v4 prompts take the sparse prefill", v4, extend(4096),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerPagedSplit, 64,
				[]int{4096}}},
		{"47 v4 decode is paged", v4, plan.Batch{Mode: plan.ModeDecode, Requests: repeat(64, plan.DecodeRequest(4000))},
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{64}}},
		{"48 v4 without sparse prefill is paged", v4Off, extend(4096),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{4096}}},
		{"48 v4 without sparse prefill is sliced", v4Off, extend(12000),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerContiguous, 64,
				[]int{11622, 378}}},
		{"49 v4 on workstations is paged", public("sm120", family(t, "deepseek_v4")), extend(20000),
			facts{plan.FormV4Paged, plan.V4PagedArch, plan.ConvertNone, plan.TransformPaged, plan.IndexerContiguous, 0,
				nil}},
		{"50 one v4 prompt of 8192 is scored contiguously", v4, extend(8192),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerContiguous, 64, nil}},
		{"50 one row less is paged", v4, extend(8191),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerPagedSplit, 64, nil}},
		{"50 two prompts are paged", v4, extend(8192, 8192),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerPagedSplit, 64, nil}},
		{"53 48 heads are padded to 64", public("sm90", kv("bf16"), heads(48)), extend(8192),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged,
				64, nil}},
		{"54 amd eager decode skips scores when short", amd, decode(2000, 17),
			facts{plan.FormSparseMLA, plan.TileLang, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 16, nil}},
		{"54 amd captured decode runs the short graph when short", amd, inGraph(plan.GraphReplay, decode(2000, 17)),
			facts{plan.FormSparseMLA, plan.TileLang, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 16, nil}},
		{"54 amd captured decode runs the long graph otherwise", amd, inGraph(plan.GraphReplay, decode(2049, 17)),
			facts{plan.FormSparseMLA, plan.TileLang, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				nil}},
		{"55 v4 prompts by size: few rows are paged", v4Auto, extend(4096),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{4096}}},
		{"55 as many as one launch holds are paged", v4Auto, extend(11622),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerContiguous, 64,
				[]int{11622}}},
		{"55 one more takes the sparse prefill", v4Auto, extend(11623),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerContiguous, 64,
				[]int{11623}}},
		{"55 many take the sparse prefill", v4Auto, extend(20000),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerContiguous, 64,
				[]int{20000}}},
		{"55 rows of several prompts count together", v4Auto, extend(11000, 1000),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerPagedSplit, 64,
				[]int{12000}}},
		{"55 size changes nothing where the sparse prefill is not allowed", public("sm90", family(t, "deepseek_v4"), cp,
			wish(func(p *Policy) { p.V4SparsePrefill = plan.SparsePrefillAuto })), extend(30000),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{11622, 3378}}},
		{"55 the fp8 prefill is chosen by size too", public("sm90", family(t, "deepseek_v4"),
			wish(func(p *Policy) { p.V4Q8, p.V4SparsePrefill = true, plan.SparsePrefillAuto })), extend(4096),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{4096}}},
		{"09 block prefill over raw rows rewrites pages", public("sm100", kv("fp8"), kernelsOf("flashmla_kv",
			"trtllm")), extend(3000),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertRawToBlock, plan.TransformPaged, plan.IndexerRagged,
				64, nil}},
		{"09 its decode reads raw rows", public("sm100", kv("fp8"), kernelsOf("flashmla_kv", "trtllm")), decode(3000),
			facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				nil}},
		{"09 auto over raw rows rewrites pages", public("sm100", kv("fp8"), kernelsOf("auto", "trtllm")), extend(3000),
			facts{plan.FormSparseMLA, plan.FlashMLAKV, plan.ConvertRawToBlock, plan.TransformPaged, plan.IndexerRagged,
				64, nil}},
		{"sparse prefill over raw rows gathers them",
			public("sm100", kv("fp8"), kernelsOf("flashmla_sparse", "trtllm")), extendOver(3000, 10),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertGatherBF16, plan.TransformRagged,
				plan.IndexerRagged, 128, nil}},
		{"q8 prefill always gathers", public("sm90", kv("fp8"), kernelsOf("flashmla_sparse_q8", "flashmla_kv")),
			extend(3000), facts{plan.FormSparseMLA, plan.FlashMLASparseQ8, plan.ConvertGatherRequant,
				plan.TransformRagged, plan.IndexerRagged,
				64, nil}},
		{"v4 takes the fp8 prefill when asked",
			public("sm90", family(t, "deepseek_v4"), wish(func(p *Policy) { p.V4Q8 = true })), extend(4096),
			facts{plan.FormV4SparsePrefill, plan.FlashMLASparseQ8, plan.ConvertGatherRequant, plan.TransformRagged,
				plan.IndexerPagedSplit, 64,
				nil}},
		{"v4 on amd is paged", public("gfx95", family(t, "deepseek_v4")), extend(4096),
			facts{plan.FormV4Paged, plan.V4PagedArch, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit,
				16, nil}},
		{"v4 with parallelism is paged whatever its size", public("sm90", family(t, "deepseek_v4"), cp), extend(30000),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 64,
				[]int{11622, 3378}}},
		{"blackwell pads to 128 heads", public("sm100", kv("bf16")), extend(4096),
			facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged, plan.IndexerRagged,
				128, nil}},
		{"blackwell pads to 64 heads where built", public("sm100", kv("bf16"), func(s *setup) { s.hw.Heads64 = true }),
			extend(4096), facts{plan.FormSparseMLA, plan.FlashMLASparse, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerRagged, 64, nil}},
		{"cutedsl scores split", public("sm100", drafts(4), wish(func(p *Policy) { p.Scores = ScoreCuteDSL })),
			verify(100), facts{plan.FormSparseMLA, plan.TRTLLM, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerPagedSplit, 16, nil}},
		{"a split prefill is an extend", one, plan.Batch{Mode: plan.ModeSplitPrefill, Requests: repeat(1,
			plan.ExtendRequest(100, 0))},
			facts{plan.FormDenseMHA, plan.FlashVarlen, plan.ConvertNone, plan.TransformNone, plan.IndexerKOnly, 0,
				nil}},
		{"a validated decode skip works off amd", public("sm90",
			wish(func(p *Policy) { p.DecodeSkip = plan.SwitchOn })),
			decode(2000), facts{plan.FormSparseMLA, plan.FA3, plan.ConvertNone, plan.TransformPaged,
				plan.IndexerKOnlyWithIndices, 16, nil}},
		{"verify never skips scores", public("gfx95", drafts(2)), verify(100),
			facts{plan.FormSparseMLA, plan.TileLang, plan.ConvertNone, plan.TransformPaged, plan.IndexerPagedSplit, 16,
				nil}},
		{"v4 draft layers are window only", public("sm90", family(t, "deepseek_v4"), drafts(2)), draft(5000),
			facts{plan.FormV4Paged, plan.FlashMLAKV, plan.ConvertNone, plan.TransformPaged, plan.IndexerNone, 64, nil}},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := c.s.resolve(t)
			c.want.check(t, only(t, build(t, cfg, c.b)))
		})
	}
}

func TestPublicBatchDetails(t *testing.T) {
	public := func(hw string, tweaks ...tweak) Config {
		return newSetup(t, hw, tweaks...).resolve(t)
	}
	t.Run("23 rope stays outside the dense kernel and the layout stays raw", func(t *testing.T) {
		cfg := public("sm100")
		s := only(t, build(t, cfg, extendOver(256, 256)))
		want(t, "rope in kernel", s.RopeInKernel, false)
		want(t, "layout", s.Layout, plan.FP8Row576)
		want(t, "rope in kernel of trtllm over fp8", only(t, build(t, cfg, extend(3000))).RopeInKernel, true)
		block := public("sm100", kv("fp8"), kernelsOf("flashmla_kv", "trtllm"))
		want(t, "rope in kernel of a block prefill", only(t, build(t, block, extend(3000))).RopeInKernel, false)
		want(t, "rope in kernel of its decode", only(t, build(t, block, decode(3000))).RopeInKernel, true)
		want(t, "rope in kernel of trtllm over bf16",
			only(t, build(t, public("sm100", kv("bf16")), decode(3000))).RopeInKernel, false)
	})
	t.Run("28 padded rows are part of the kernel's rows", func(t *testing.T) {
		b := inGraph(plan.GraphPiecewise, extend(100))
		b.PaddedRows = 128
		s := only(t, build(t, public("sm90"), b))
		want(t, "rows", s.Rows, 100)
		want(t, "kernel rows", s.KernelRows, 128)
		if !hasReason(s.Reasons, "dispatch 10") {
			t.Error("no reason says that padded rows select nothing")
		}
	})
	t.Run("29 the semantic change is noticed and explained", func(t *testing.T) {
		s := newSetup(t, "sm90", wish(func(p *Policy) { p.DenseThreshold = 4096 }))
		cfg, notices, err := Resolve(s.hw, s.model, s.policy)
		if err != nil {
			t.Fatal(err)
		}
		if !slices.ContainsFunc(notices, func(n plan.Notice) bool {
			return n.Level == plan.NoticeWarning && n.Rule == "dispatch 5"
		}) {
			t.Errorf("no warning in %v", notices)
		}
		if !slices.Contains(only(t, build(t, cfg, extend(3000))).Reasons, plan.ReasonDense(3000, 2048)) {
			t.Error("the plan does not say that the threshold is above index_topk")
		}
	})
	t.Run("29 a seed above index_topk still needs scores", func(t *testing.T) {
		cfg := public("sm90", wish(func(p *Policy) { p.DenseThreshold = 4096 }))
		b := extend(3000)
		b.NeedSeed = true
		want(t, "indexer", only(t, build(t, cfg, b)).Indexer.Kind, plan.IndexerRagged)
		b = extend(300)
		b.NeedSeed = true
		want(t, "indexer of a short batch", only(t, build(t, cfg, b)).Indexer.Kind, plan.IndexerKOnlyWithIndices)
	})
	t.Run("30 splits are fixed", func(t *testing.T) {
		cfg := public("sm90", wish(func(p *Policy) {
			p.Deterministic, p.TopK, p.TieBreak = true, TopKFlashInfer, TieSmall
		}))
		want(t, "prefill splits fixed", only(t, build(t, cfg, extend(100))).SplitsFixed, true)
		want(t, "decode splits fixed", only(t, build(t, cfg, decode(100))).SplitsFixed, true)
	})
	t.Run("32 the gather holds 8192 rows", func(t *testing.T) {
		cfg := public("sm90", kv("fp8"), kernelsOf("flashmla_sparse", "flashmla_kv"))
		want(t, "launch keys", only(t, build(t, cfg, extendOver(4096, 4096))).Launches[0].Keys, 8192)
	})
	t.Run("37 planning a decode between two extends changes nothing", func(t *testing.T) {
		cfg := public("sm100", kv("fp8"), kernelsOf("flashmla_auto", "flashmla_kv"))
		before := cfg
		a := extendOver(4096, 1000000-4096)
		first := build(t, cfg, a)
		build(t, cfg, decode(5, 6))
		if again := build(t, cfg, a); !reflect.DeepEqual(first, again) {
			t.Errorf("plans differ: %+v, %+v", first, again)
		}
		if !reflect.DeepEqual(before, cfg) {
			t.Error("the configuration changed")
		}
		want(t, "configured prefill", cfg.Prefill, plan.FlashMLAAuto)
	})
	t.Run("46 scores come in 16 chunks of 512 rows", func(t *testing.T) {
		cfg := public("sm90")
		b := extendOver(8192, 131072-8192)
		b.FreeBytes = 100 * 1_000_000_000
		s := only(t, build(t, cfg, b))
		want(t, "rows per chunk", s.Indexer.RowsPerChunk, 512)
		want(t, "chunks", s.Indexer.Chunks, 16)
		b.FreeBytes = 1 << 30 // scores may use 20 % of the free memory, 0.2 GiB, which is less than the cap
		s = only(t, build(t, cfg, b))
		want(t, "rows per chunk with little memory", s.Indexer.RowsPerChunk, 409)
	})
	t.Run("51 shared layers carry, computing layers run", func(t *testing.T) {
		cfg := public("sm90", family(t, "glm-5.2"))
		s := only(t, build(t, cfg, extend(3000)))
		ix, err := cfg.IndexerAt(s, 3, true)
		if err != nil || ix.Kind != plan.IndexerCarry {
			t.Errorf("layer 3 with indices: %v, %v", ix, err)
		}
		_, err = cfg.IndexerAt(s, 3, false)
		wantError(t, err, plan.E23)
		ix, err = cfg.IndexerAt(s, 6, false)
		if err != nil || ix.Kind != plan.IndexerRagged {
			t.Errorf("layer 6: %v, %v", ix, err)
		}
	})
	t.Run("52 an idle rank has an empty plan and keeps collectives", func(t *testing.T) {
		for _, hw := range []string{"sm90", "sm100", "gfx95"} {
			p := build(t, public(hw), plan.Batch{Mode: plan.ModeIdle})
			want(t, "segments", len(p.Segments), 0)
			want(t, "collectives", p.Collectives, true)
			want(t, "bytes", p.TransientBytes, 0)
		}
	})
	t.Run("55 and 56 the schedule kernel is named", func(t *testing.T) {
		v4 := func(hw string, mode plan.SparsePrefill, by plan.Schedule, more ...tweak) Config {
			return public(hw, append([]tweak{family(t, "deepseek_v4"), wish(func(p *Policy) {
				p.V4SparsePrefill,
					p.V4Schedule = mode, by
			})}, more...)...)
		}
		for _, c := range []struct {
			name string
			cfg  Config
			b    plan.Batch
			want plan.Schedule
		}{
			{"55 auto, 4096", v4("sm90", plan.SparsePrefillAuto, plan.ScheduleUnset), extend(4096),
				plan.ScheduleLibrary},
			{"55 auto, 11622", v4("sm90", plan.SparsePrefillAuto, plan.ScheduleUnset), extend(11622),
				plan.ScheduleLibrary},
			{"55 auto, 11623", v4("sm90", plan.SparsePrefillAuto, plan.ScheduleUnset), extend(11623), plan.ScheduleOwn},
			{"55 auto, 20000", v4("sm90", plan.SparsePrefillAuto, plan.ScheduleUnset), extend(20000), plan.ScheduleOwn},
			{"56 auto, the own kernel asked for", v4("sm90", plan.SparsePrefillAuto, plan.ScheduleOwn), extend(4096),
				plan.ScheduleOwn},
			{"on", v4("sm90", plan.SparsePrefillOn, plan.ScheduleUnset), extend(4096), plan.ScheduleOwn},
			{"unset", v4("sm90", plan.SparsePrefillUnset, plan.ScheduleUnset), decode(4096), plan.ScheduleOwn},
			{"off", v4("sm90", plan.SparsePrefillOff, plan.ScheduleUnset), extend(12000), plan.ScheduleOwn},
			{"the library asked for", v4("sm90", plan.SparsePrefillOn, plan.ScheduleLibrary), extend(4096),
				plan.ScheduleLibrary},
			{"the library cannot hold them", v4("sm90", plan.SparsePrefillOn, plan.ScheduleLibrary), extend(12000),
				plan.ScheduleOwn},
			{"four-bit keys of a workstation", v4("sm120", plan.SparsePrefillUnset, plan.ScheduleUnset,
				func(s *setup) { s.model.IndexFP4 = true }), extend(20000), plan.ScheduleLibrary},
			{"amd has none", v4("gfx95", plan.SparsePrefillUnset, plan.ScheduleUnset), extend(20000),
				plan.ScheduleUnset},
			{"short prompts are not scored", v4("sm90", plan.SparsePrefillOn, plan.ScheduleUnset), extend(100),
				plan.ScheduleUnset},
			{"other families have none", public("sm90"), decode(5000), plan.ScheduleUnset},
		} {
			want(t, c.name, only(t, build(t, c.cfg, c.b)).Indexer.Schedule, c.want)
		}
	})
	t.Run("the schedule of v4 on a workstation is not told by a launch it does not have", func(t *testing.T) {
		for _, mode := range []plan.SparsePrefill{plan.SparsePrefillUnset, plan.SparsePrefillAuto,
			plan.SparsePrefillOff} {
			for _, rows := range []int{5068, 5069, 20000} {
				cfg := public("sm120", family(t, "deepseek_v4"), wish(func(p *Policy) { p.V4SparsePrefill = mode }))
				s := only(t, build(t, cfg, extend(rows)))
				want(t, "schedule", s.Indexer.Schedule, plan.ScheduleOwn)
				for _, r := range append(s.Reasons, cfg.Reasons...) {
					if strings.Contains(r.Text, "5068") || strings.Contains(r.Text, "library") {
						t.Errorf("%d rows, %s: %s", rows, mode, r.Text)
					}
				}
			}
		}
	})
	t.Run("four-bit keys are never scored contiguously", func(t *testing.T) {
		fp4 := wish(func(p *Policy) { p.FP4Index = true })
		cfg := public("sm90", family(t, "deepseek_v4"), fp4)
		want(t, "layout", cfg.IndexLayout, plan.IndexPage68)
		want(t, "indexer", only(t, build(t, cfg, extend(9000))).Indexer.Kind, plan.IndexerPagedSplit)
		want(t, "schedule on a workstation", public("sm120", family(t, "deepseek_v4"), fp4).Schedule,
			plan.ScheduleLibrary)
		newSetup(t, "sm90", fp4).refused(t, plan.E05)
	})
	t.Run("a graph has the plan of its capture at every length", func(t *testing.T) {
		cfg := public("sm90")
		short, long := build(t, cfg, inGraph(plan.GraphReplay, decode(5))), build(t, cfg,
			inGraph(plan.GraphReplay, decode(163840)))
		want(t, "key", short.Key, long.Key)
	})
	t.Run("a bf16 prefix of a dense batch is not dequantised", func(t *testing.T) {
		for _, hw := range []string{"sm90", "sm100", "gfx95"} {
			for kvName, convert := range map[string]plan.Convert{"bf16": plan.ConvertNone,
				"fp8": plan.ConvertGatherBF16} {
				s := only(t, build(t, public(hw, kv(kvName)), extendOver(256, 256)))
				want(t, hw+" "+kvName+" form", s.Form, plan.FormDenseMHA)
				want(t, hw+" "+kvName, s.Convert, convert)
				want(t, "reason", hasReason(s.Reasons, "dispatch 7"), true)
			}
		}
	})
	t.Run("54 the host picks the graph by length", func(t *testing.T) {
		cfg := public("gfx95", kv("fp8"))
		short := only(t, build(t, cfg, inGraph(plan.GraphReplay, decode(2048))))
		long := only(t, build(t, cfg, inGraph(plan.GraphReplay, decode(2049))))
		want(t, "short variant", short.Variant, plan.VariantShort)
		want(t, "long variant", long.Variant, plan.VariantLong)
		if a, b := build(t, cfg, inGraph(plan.GraphReplay, decode(2048))),
			build(t, cfg, inGraph(plan.GraphReplay, decode(2049))); a.Key == b.Key {
			t.Error("both graphs have one key")
		}
		want(t, "variant on cuda", only(t, build(t, public("sm90"), inGraph(plan.GraphReplay, decode(100)))).Variant,
			plan.VariantOnly)
	})
}
