package plan

import (
	"errors"
	"strings"
	"testing"
)

// TestStartRefusals walks the rules of Resolve that the numbered cases do not
// reach.
func TestStartRefusals(t *testing.T) {
	public := func(hw string, tweaks ...tweak) *setup { return newSetup(t, CatalogPublic, hw, tweaks...) }
	ours := func(hw string, tweaks ...tweak) *setup { return newSetup(t, CatalogSparrow, hw, tweaks...) }
	p := wish
	v4 := family(t, "deepseek_v4")
	for _, c := range []struct {
		name string
		s    *setup
		code Code
	}{
		{"page 32 on cuda", public("sm90", p(func(p *Policy) { p.Page = 32 })), E06},
		{"page 1 on cpu", ours("cpu", p(func(p *Policy) { p.Page = 1 })), E06},
		{"page 24 with preshuffle", public("gfx95", p(func(p *Policy) { p.Page = 24 })), E06},
		{"page 64 without preshuffle", public("gfx95", func(s *setup) { s.hw.Preshuffle = false; s.policy.Page = 64 }),
			E06},
		{"tilelang with another index_topk",
			public("gfx95", func(s *setup) { s.model.K = 1024 }, kernelsOf("tilelang", "tilelang")), E07},
		{"flashmla_kv with an odd index_topk", public("sm90", kv("fp8"), func(s *setup) { s.model.K = 2000 }), E07},
		{"our hopper kernels with an odd index_topk", ours("sm90", func(s *setup) { s.model.K = 100 }), E07},
		{"130 heads on hopper", ours("sm90", heads(130)), E08},
		{"12 heads with aiter", public("gfx95", heads(12), kernelsOf("aiter", "aiter")), E08},
		{"48 heads with q8", public("sm90", kv("fp8"), heads(48), kernelsOf("flashmla_sparse_q8", "")), E08},
		{"65 index heads on hopper", ours("sm90", func(s *setup) { s.model.IndexHeads = 65 }), E08},
		{"foreign selection in our catalogue", ours("cpu", p(func(p *Policy) { p.TopK = TopKTorch })), E09},
		{"our selection in the public catalogue", public("sm90", p(func(p *Policy) { p.TopK = TopKStable })), E09},
		{"a tie break without flashinfer", public("sm90", p(func(p *Policy) { p.TieBreak = TieSmall })), E09},
		{"ties by the largest position", ours("cpu", p(func(p *Policy) { p.TieBreak = TieLarge })), E09},
		{"cutedsl off sm100", public("sm90", p(func(p *Policy) { p.Scores = ScoreCuteDSL })), E02},
		{"foreign scores in our catalogue", ours("sm90", p(func(p *Policy) { p.Scores = ScoreDeepGEMM })), E02},
		{"context parallelism without strategy", public("sm90", p(func(p *Policy) { p.CP.Size = 2 })), E10},
		{"context parallelism over 16 ranks", public("sm90", p(func(p *Policy) { p.CP = CP{CPInterleave, 16} })), E10},
		{"context parallelism with attention split",
			public("sm90", p(func(p *Policy) { p.CP, p.AttentionTP = CP{CPZigzag, 2}, 2 })), E10},
		{"interleave with data parallelism", public("sm90", p(func(p *Policy) { p.CP, p.DP = CP{CPInterleave, 2}, 2 })),
			E10},
		{"context parallelism on a decode worker",
			public("sm90", p(func(p *Policy) { p.CP, p.Role = CP{CPInterleave, 2}, RoleDecode })), E10},
		{"context parallelism in our catalogue", ours("cpu", p(func(p *Policy) { p.CP = CP{CPInterleave, 2} })), E10},
		{"q8 with context parallelism",
			public("sm90", kv("fp8"), kernelsOf("flashmla_sparse_q8", ""),
				p(func(p *Policy) { p.CP = CP{CPInterleave, 2} })), E10},
		{"tree drafts in our catalogue",
			ours("cpu", p(func(p *Policy) { p.Speculation = Speculation{Steps: 2, Branches: 2} })), E11},
		{"a pipeline cut on a shared layer",
			public("sm90", family(t, "glm-5.2"), p(func(p *Policy) { p.PipelineCuts = []int{39} })), E12},
		{"overlap of shared layers in our catalogue",
			ours("cpu", family(t, "glm-5.2"), p(func(p *Policy) { p.TBO = true })), E12},
		{"deterministic with unstable selection", public("sm90", p(func(p *Policy) { p.Deterministic = true })), E13},
		{"deterministic with automatic splits",
			ours("cpu", p(func(p *Policy) { p.Deterministic, p.AutomaticSplits = true, SwitchOn })), E13},
		{"deterministic with a kernel that splits by load",
			public("sm100", p(func(p *Policy) {
				p.Deterministic, p.TopK, p.TieBreak = true, TopKFlashInfer, TieSmall
			})), E13},
		{"deterministic with two arithmetics",
			ours("sm90", kv("fp8"), kernelsOf("sparse-flat", "sparse-block"),
				p(func(p *Policy) { p.Deterministic = true })), E13},
		{"deterministic v4 with a flat prefill",
			ours("sm90", v4, kernelsOf("v4-flat", ""), p(func(p *Policy) { p.Deterministic = true })), E13},
		{"hisparse with the radix cache", public("sm90", p(func(p *Policy) { p.HiSparse, p.RadixCache = true, true })),
			E14},
		{"hisparse with another kernel",
			public("sm90", kernelsOf("fa3", "fa3"), p(func(p *Policy) { p.HiSparse = true })), E14},
		{"hisparse in our catalogue", ours("cpu", p(func(p *Policy) { p.HiSparse = true })), E14},
		{"a missing build", public("sm103", kernelsOf("trtllm", "trtllm"), func(s *setup) {
			s.hw.Missing = []Kernel{TRTLLM}
		}), E16},
		{"a reserve below one row", ours("sm90", p(func(p *Policy) { p.MaxTransient = 100000 })), E17},
		{"bf16 for v4", ours("cpu", v4, kv("bf16")), E05},
		{"a dsa layout for v4", ours("cpu", v4, kv("fp8-656")), E05},
		{"a dsa kernel for v4", ours("cpu", v4, kernelsOf("sparse-block", "")), E02},
		{"the fp8 prefill of v4 off hopper", public("sm100", v4, p(func(p *Policy) { p.V4Q8 = true })), E02},
		{"the fp8 prefill of v4 in our catalogue", ours("sm90", v4, p(func(p *Policy) { p.V4Q8 = true })), E02},
		{"the sparse prefill of v4 on amd", public("gfx95", v4,
			p(func(p *Policy) { p.V4SparsePrefill = SparsePrefillOn })), E02},
		{"the sparse prefill of v4 with parallelism", public("sm90", v4, p(func(p *Policy) {
			p.V4SparsePrefill,
				p.CP = SparsePrefillOn, CP{CPInterleave, 2}
		})), E02},
		{"a flat prefill with the sparse prefill off", ours("cpu", v4, kernelsOf("v4-flat", ""),
			p(func(p *Policy) { p.V4SparsePrefill = SparsePrefillOff })), E02},
		{"a schedule kernel in our catalogue", ours("sm90", v4, p(func(p *Policy) { p.V4Schedule = ScheduleOwn })),
			E02},
		{"hardware without an architecture", &setup{model: model(t, "deepseek_v32", 16)}, E01},
		{"v4 on ampere", public("sm80", v4), E01},
	} {
		t.Run(c.name, func(t *testing.T) { c.s.refused(t, c.code) })
	}
	t.Run("E17 states the fraction that would work", func(t *testing.T) {
		e := ours("sm90", p(func(p *Policy) { p.StaticFraction = 0.999999 })).refused(t, E17)
		if !strings.Contains(e.Supported, "static fraction of at most 0.9") {
			t.Errorf("supported %q", e.Supported)
		}
	})
	for _, c := range []struct {
		name string
		s    *setup
	}{
		{"hopper without its shared memory", public("sm90", func(s *setup) { s.hw.SmemOptin = 0 })},
		{"hopper without multiprocessors", ours("sm90", func(s *setup) { s.hw.SMs = 0 })},
		{"a missing kernel that does not exist", ours("cpu", func(s *setup) { s.hw.Missing = []Kernel{200} })},
		{"negative threshold", ours("cpu", p(func(p *Policy) { p.DenseThreshold = -1 }))},
		{"negative cap", ours("cpu", p(func(p *Policy) { p.ScoreCap = -1 }))},
		{"a static fraction of 1", ours("cpu", p(func(p *Policy) { p.StaticFraction = 1 }))},
		{"negative drafts", ours("cpu", drafts(-1))},
		{"an unknown catalogue", ours("cpu", p(func(p *Policy) { p.Catalog = 7 }))},
		{"a pipeline cut beyond the model", ours("cpu", p(func(p *Policy) { p.PipelineCuts = []int{61} }))},
		{"no family", ours("cpu", func(s *setup) { s.model.Family = FamilyUnset })},
		{"no heads", ours("cpu", heads(0))},
		{"no index_topk", ours("cpu", func(s *setup) { s.model.K = 0 })},
		{"no index heads", ours("cpu", func(s *setup) { s.model.IndexHeads = 0 })},
		{"no layers", ours("cpu", func(s *setup) { s.model.Layers = 0 })},
		{"no context", ours("cpu", func(s *setup) { s.model.Context = 0 })},
		{"no head widths", ours("cpu", func(s *setup) { s.model.VDim = 0 })},
		{"no window", ours("cpu", v4, func(s *setup) { s.model.Window = 0 })},
		{"too few ratios", ours("cpu", v4, func(s *setup) { s.model.Ratios = s.model.Ratios[:3] })},
		{"a shared first layer", ours("cpu", func(s *setup) { s.model.Share.Pattern = "SF" })},
	} {
		t.Run("bad input: "+c.name, func(t *testing.T) {
			if _, _, err := Resolve(c.s.hw, c.s.model, c.s.policy); err == nil {
				t.Error("no error")
			}
		})
	}
}

// TestBatchRefusals: batches that contradict themselves or their plan.
func TestBatchRefusals(t *testing.T) {
	ours := newSetup(t, CatalogSparrow, "sm90", kv("fp8")).resolve(t)
	theirs := newSetup(t, CatalogPublic, "sm90", kv("fp8")).resolve(t)
	speculating := newSetup(t, CatalogPublic, "sm90", drafts(2)).resolve(t)
	unsliced := newSetup(t, CatalogPublic, "sm90", kv("fp8"),
		wish(func(p *Policy) { p.Slicing = SwitchOff })).resolve(t)
	padded := func(n int, b Batch) Batch { b.PaddedRows = n; return b }
	table := func(n int, b Batch) Batch { b.TablePages = n; return b }
	for _, c := range []struct {
		name string
		cfg  Config
		b    Batch
		code Code
	}{
		{"no mode", ours, NewBatch(ModeUnset, DecodeRequest(5)), E20},
		{"an unknown mode", ours, NewBatch(99, DecodeRequest(5)), E20},
		{"an unknown graph mode", ours, inGraph(9, decode(5)), E20},
		{"a mixed batch without kinds", ours, NewBatch(ModeMixed, Request{Seq: 5}), E20},
		{"an idle request in a mixed batch", ours, NewBatch(ModeMixed, Request{Kind: ModeIdle}), E20},
		{"a decode request in an extend batch", ours, NewBatch(ModeExtend, DecodeRequest(5)), E20},
		{"mixed while speculating", speculating, NewBatch(ModeMixed, ExtendRequest(5, 0)), E20},
		{"verify in a public mixed batch", theirs, NewBatch(ModeMixed, ExtendRequest(5, 0), VerifyRequest(2, 5)), E20},
		{"requests in an idle batch", ours, NewBatch(ModeIdle, DecodeRequest(5)), E26},
		{"an empty decode", ours, NewBatch(ModeDecode), E26},
		{"lengths that do not add up", ours, NewBatch(ModeExtend, Request{Seq: 10, Prefix: 3, Extend: 6}), E26},
		{"an extend of nothing", ours, NewBatch(ModeExtend, ExtendRequest(0, 7)), E26},
		{"a negative length", ours, decode(-1), E26},
		{"a negative prefix", ours, NewBatch(ModeExtend, Request{Seq: 2, Prefix: -1, Extend: 3}), E26},
		{"a decode with a prefix", ours, NewBatch(ModeDecode, Request{Seq: 5, Prefix: 4}), E26},
		{"padding that has keys", ours, NewBatch(ModeDecode, Request{Seq: 5, Padding: true}), E26},
		{"a prompt as padding", ours, NewBatch(ModeExtend, Request{Padding: true}), E26},
		{"a decode of two tokens", ours, NewBatch(ModeDecode, Request{Seq: 5, N: 2}), E26},
		{"keys beyond int32", ours, Batch{Mode: ModeDecode, Requests: repeat(3, DecodeRequest(1<<30))}, E26},
		{"less padding than rows", ours, padded(1, decode(5, 6)), E26},
		{"padding that cuts a request", ours, padded(5, NewBatch(ModeVerify, VerifyRequest(2, 5), VerifyRequest(2, 5))),
			E26},
		{"padding of a mixed batch", ours, padded(64, NewBatch(ModeMixed, DecodeRequest(5), VerifyRequest(2, 9))), E26},
		{"padding of a prompt in our catalogue", ours, padded(64, extend(5)), E26},
		{"a table too narrow", ours, table(1, decode(65)), E26},
		{"negative free bytes", ours, Batch{Mode: ModeDecode, Requests: repeat(1, DecodeRequest(1)), FreeBytes: -1},
			E26},
		{"verify widths that differ in the public catalogue", theirs,
			NewBatch(ModeVerify, VerifyRequest(2, 5), VerifyRequest(3, 5)), E26},
		{"a captured prompt", ours, inGraph(GraphCapture, extend(5)), E25},
		{"a piecewise decode", theirs, inGraph(GraphPiecewise, decode(5)), E25},
		{"a piecewise prompt in our catalogue", ours, inGraph(GraphPiecewise, extend(5)), E25},
		{"more rows than a launch takes with slicing off", unsliced, extendOver(12000, 5000), E24},
	} {
		t.Run(c.name, func(t *testing.T) {
			p, err := Build(c.cfg, c.b)
			wantError(t, err, c.code)
			if p != nil {
				t.Error("a plan came with the error")
			}
			if _, err := ShapeOf(c.cfg, c.b); err == nil && c.code == E20 && c.cfg.Catalog == CatalogSparrow {
				t.Error("a shape came without error")
			}
		})
	}
}

// TestRunRefusals: the refusals other packages raise carry their code and
// their numbers.
func TestRunRefusals(t *testing.T) {
	for _, c := range []struct {
		err   *Error
		code  Code
		texts []string
	}{
		{ErrDraftHeadMissing("tiny", 61, "model.layers.61.eh_proj.weight"), E15, []string{"tiny", "61",
			"model.layers.61.eh_proj.weight"}},
		{ErrTableRange(3, 70, 64), E22, []string{"request 3", "page 70", "63"}},
		{ErrCarryMissing(3, 2), E23, []string{"layer 3", "layer 2"}},
		{ErrLength("tables", 3, 4), E26, []string{"tables", "3", "4"}},
		{ErrLayout("fp8-576 rows", "fp8-656 rows"), E27, []string{"fp8-576", "fp8-656"}},
		{ErrKernelStatus(ModeDecode, 12), E28, []string{"decode", "12"}},
	} {
		t.Run(string(c.code), func(t *testing.T) {
			if !errors.Is(c.err, c.code) || errors.Is(c.err, E01) {
				t.Errorf("%v is not %s alone", c.err, c.code)
			}
			for _, w := range append(c.texts, string(c.code), c.code.Title()) {
				if !strings.Contains(c.err.Error(), w) {
					t.Errorf("%q lacks %q", c.err.Error(), w)
				}
			}
		})
	}
	for code, title := range codeTitles {
		if title == "" || code.Error() == "" || !strings.HasPrefix(code.Error(), string(code)) {
			t.Errorf("code %s is worded %q", code, code.Error())
		}
	}
}

func TestLayerSharing(t *testing.T) {
	t.Run("glm-5.2 computes on 21 of 78 layers", func(t *testing.T) {
		m := model(t, "glm-5.2", 16)
		var full []int
		for l := range m.Layers {
			if !m.Share.Shared(l) {
				full = append(full, l)
			}
		}
		want(t, "computing layers", len(full), 21)
		wantInts(t, "first and last", []int{full[0], full[1], full[2], full[3], full[20]}, []int{0, 1, 2, 6, 74})
	})
	for _, c := range []struct {
		name  string
		share LayerShare
		want  string // of layers 0 to 7
	}{
		{"none", LayerShare{}, "FFFFFFFF"},
		{"a factor wins over everything", LayerShare{Factor: 2, Pattern: "FFFF", Freq: 4}, "FSFSFSFS"},
		{"types win over a pattern", LayerShare{Types: []bool{false, true}, Pattern: "FFS"}, "FSFFFFFF"},
		{"a pattern may be shorter than the model", LayerShare{Pattern: "FSS"}, "FSSFFFFF"},
		{"a frequency with an offset", LayerShare{Freq: 4, Offset: 3}, "FFFSSSFS"},
		{"a frequency alone", LayerShare{Freq: 2}, "FFSFSFSF"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := []byte("FFFFFFFF")
			for l := range got {
				if c.share.Shared(l) {
					got[l] = 'S'
				}
			}
			want(t, "layers", string(got), c.want)
		})
	}
	t.Run("dense rows of a shared layer need no carry", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", family(t, "glm-5.2")).resolve(t)
		s := only(t, build(t, cfg, extend(10)))
		ix, err := cfg.IndexerAt(s, 3, false)
		if err != nil || ix.Kind != IndexerNone {
			t.Errorf("%v, %v", ix, err)
		}
		if ix, _ := cfg.IndexerAt(s, 2, false); ix.Kind != IndexerKOnly {
			t.Errorf("layer 2: %v", ix)
		}
	})
	t.Run("the draft layer owns its indexer", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", family(t, "glm-5.2")).resolve(t)
		s := only(t, build(t, cfg, NewBatch(ModeDraft, DraftRequest(2, 90))))
		if ix, err := cfg.IndexerAt(s, 78, false); err != nil || ix.Kind != IndexerPagedSplit {
			t.Errorf("%v, %v", ix, err)
		}
	})
	t.Run("v4 layers without the ratio-4 stream have no indexer", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", family(t, "deepseek_v4")).resolve(t)
		s := only(t, build(t, cfg, decode(9000)))
		for layer, kind := range map[int]IndexerKind{0: IndexerNone, 2: IndexerPagedSplit, 3: IndexerNone} {
			if ix, err := cfg.IndexerAt(s, layer, false); err != nil || ix.Kind != kind {
				t.Errorf("layer %d: %v, %v, want %s", layer, ix, err, kind)
			}
		}
	})
	t.Run("a negative layer is refused", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu").resolve(t)
		if _, err := cfg.IndexerAt(&Segment{}, -1, true); err == nil {
			t.Error("no error")
		}
	})
}
