package plan

import (
	"fmt"
	"slices"
	"strings"
	"testing"
)

// line returns the decisions of a segment as one line of a table.
func line(s *Segment) string {
	indexer := s.Indexer.Kind.String()
	if s.Indexer.Kind == IndexerPagedNative {
		indexer += fmt.Sprint(s.Indexer.NextN)
		if s.Indexer.KernelN != s.Indexer.NextN {
			indexer += fmt.Sprintf(" as %d", s.Indexer.KernelN)
		}
	}
	return fmt.Sprintf("%s %d: %s %s %s %s %s %s heads %d launches %v",
		s.Row, s.Rows, s.Form, s.Kernel, s.Layout, s.Convert, s.Transform, indexer, s.KernelHeads, launchRows(s))
}

// Three verified rows run as four rows with the kernels for Hopper, which exist for 1, 2 and 4 rows, and as three rows
// elsewhere.
func TestRowsOfTheIndexerKernel(t *testing.T) {
	for arch := CPU; arch <= GFX95; arch++ {
		for _, portable := range []bool{false, true} {
			hw := Hardware{Arch: arch, Portable: portable}
			for n := 1; n <= 8; n++ {
				want := n
				if arch == SM90 && !portable && n == 3 {
					want = 4
				}
				if got := hw.kernelN(n); got != want {
					t.Errorf("%v, portable %v: %d rows run as %d, want %d", arch, portable, n, got, want)
				}
			}
		}
	}
}

// TestSparrowPlans checks the plans of batches with our own catalogue.
func TestSparrowPlans(t *testing.T) {
	ours := func(hw string, tweaks ...tweak) *setup { return newSetup(t, hw, tweaks...) }
	threshold := func(n int) tweak { return wish(func(p *Policy) { p.DenseThreshold = n }) }
	cpu, gpu := ours("cpu", threshold(2048)), ours("sm90")
	block := ours("sm90", kv("fp8"))
	raw := ours("sm90", kv("fp8-576"))
	flat8 := ours("sm90", kv("fp8"), kernelsOf("sparse-flat", ""))
	pools8 := ours("sm90", family(t, "glm5_next"), kv("fp8"), kernelsOf("sparse-flat", ""))
	v4 := ours("sm90", family(t, "deepseek_v4"))
	v4Paged := ours("sm90", family(t, "deepseek_v4"), wish(func(p *Policy) { p.V4SparsePrefill = SparsePrefillOff }))
	off := wish(func(p *Policy) { p.Dense = SwitchOff })
	det := wish(func(p *Policy) { p.Deterministic = true })
	seeded := func(b Batch) Batch { b.NeedSeed = true; return b }
	for _, c := range []struct {
		name string
		s    *setup
		b    Batch
		want string // one line per segment
	}{
		{"01 a short prompt on cpu is dense", cpu, extend(512),
			"dense-prefill 512: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [512]"},
		{"02 a prompt of index_topk tokens is dense", cpu, extend(2048),
			"dense-prefill 2048: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [2048]"},
		{"02 without a wish a cpu is dense up to what was measured", ours("cpu"), extend(2049),
			"dense-prefill 2048: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [1]"},
		{"02 without a wish hopper is dense up to index_topk", gpu, extend(2049),
			"dense-prefill 2048: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat bf16-1152 none paged ragged heads 64 launches [1]"},
		{"03 one more token adds one sparse row", cpu, extend(2049),
			"dense-prefill 2048: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [1]"},
		{"04 a single token is dense", cpu, extend(1),
			"dense-prefill 1: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [1]"},
		{"05 a prefix counts towards the threshold", cpu, extendOver(100, 2000),
			"dense-prefill 48: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [48]\n" +
				"sparse-prefill 52: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [52]"},
		{"06 a prefix at the threshold leaves no dense row", cpu, extendOver(100, 2048),
			"sparse-prefill 100: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [100]"},
		{"07 one token below the threshold leaves one dense row", cpu, extendOver(1, 2047),
			"dense-prefill 1: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [1]"},
		{"08 a long neighbour changes nothing for a short one", cpu, extend(100, 5000),
			"dense-prefill 2148: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [2148]\n" +
				"sparse-prefill 2952: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [2952]"},
		{"09 decode on cpu", cpu, decode(10, 3000, 2048),
			"decode 3: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 16 launches [3]"},
		{"10 decode on hopper pads heads", gpu, decode(10, 3000),
			"decode 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [2]"},
		{"11 a short decode takes the paged path, in its short variant", gpu, decode(1),
			"decode 1: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [1]"},
		{"12 verify of 2 is native", ours("sm90", drafts(2)), verify(100, 5000),
			"verify 4: sparse-mla sparse-flat bf16-1152 none paged paged-native2 heads 64 launches [4]"},
		{"13 verify of 4 is native", ours("cpu", drafts(4)), verify(100),
			"verify 4: sparse-mla sparse-flat bf16-1152 none paged paged-native4 heads 16 launches [4]"},
		{"14 verify of 3 is native", ours("sm90", drafts(3)), verify(100),
			"verify 3: sparse-mla sparse-flat bf16-1152 none paged paged-native3 as 4 heads 64 launches [3]"},
		{"14 verify of 3 on cpu masks no row", ours("cpu", drafts(3)), verify(100),
			"verify 3: sparse-mla sparse-flat bf16-1152 none paged paged-native3 heads 16 launches [3]"},
		{"14 verify of 8 on cpu is native", ours("cpu", drafts(8)), verify(100),
			"verify 8: sparse-mla sparse-flat bf16-1152 none paged paged-native8 heads 16 launches [8]"},
		{"14 verify of 5 is split", ours("sm90", drafts(5)), verify(100),
			"verify 5: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [5]"},
		{"14 verify of 6 runs in groups of 3", ours("sm90", drafts(6)), verify(100),
			"verify 6: sparse-mla sparse-flat bf16-1152 none paged paged-native3 as 4 heads 64 launches [6]"},
		{"14 verify of 8 runs in groups of 4", ours("sm90", drafts(8)), verify(100, 90),
			"verify 16: sparse-mla sparse-flat bf16-1152 none paged paged-native4 heads 64 launches [16]"},
		{"14 verify of 9 on cpu runs in groups of 3", ours("cpu", drafts(9)), verify(100),
			"verify 9: sparse-mla sparse-flat bf16-1152 none paged paged-native3 heads 16 launches [9]"},
		{"15 verify of 1 is split", gpu, verify(100),
			"verify 1: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [1]"},
		{"16 draft is always split", ours("sm90", drafts(2)), draft(104, 0),
			"draft 4: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [4]"},
		{"17 verify widths make segments", gpu,
			NewBatch(ModeMixed, VerifyRequest(4, 10), VerifyRequest(2, 20), VerifyRequest(4, 30)),
			"verify 2: sparse-mla sparse-flat bf16-1152 none paged paged-native2 heads 64 launches [2]\n" +
				"verify 8: sparse-mla sparse-flat bf16-1152 none paged paged-native4 heads 64 launches [8]"},
		{"18 every kind of row in one batch", block,
			NewBatch(ModeMixed, DraftRequest(2, 50), DecodeRequest(9), ExtendRequest(3000, 0), VerifyRequest(2, 70)),
			"dense-prefill 2048: dense-mha dense-ragged fp8-656 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 952: sparse-mla sparse-block fp8-656 none paged ragged heads 64 launches [952]\n" +
				"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 64 launches [1]\n" +
				"verify 2: sparse-mla sparse-block fp8-656 none paged paged-native2 heads 64 launches [2]\n" +
				"draft 2: sparse-mla sparse-block fp8-656 none paged paged-split heads 64 launches [2]"},
		{"19 dense rows over fp8 gather without a prefix too", block, extend(512),
			"dense-prefill 512: dense-mha dense-ragged fp8-656 gather-rows none k-only heads 16 launches [512]"},
		{"20 a block prefill has no schedule to fit", block, extendOver(12000, 2048),
			"sparse-prefill 12000: sparse-mla sparse-block fp8-656 none paged ragged heads 64 launches [12000]"},
		{"23 the cpu has no row limit", ours("cpu", kv("fp8")), extendOver(12000, 2048),
			"sparse-prefill 12000: sparse-mla sparse-block fp8-656 none paged ragged heads 16 launches [12000]"},
		{"24 no axis of a grid counts flat rows", gpu, extendOver(65536, 2048),
			"sparse-prefill 65536: sparse-mla sparse-flat bf16-1152 none paged ragged heads 64 launches [65536]"},
		{"24 an int32 counts units of 64 heads", ours("sm90", heads(128)), extendOver(1_100_000_000, 2048),
			"sparse-prefill 1100000000: sparse-mla sparse-flat bf16-1152 none paged ragged heads 128 " +
				"launches [1073741823 26258177]"},
		{"25 nor raw rows", raw, extendOver(65536, 2048),
			"sparse-prefill 65536: sparse-mla sparse-raw fp8-576 none paged ragged heads 64 launches [65536]"},
		{"26 raw rows decode in place", raw, decode(100),
			"decode 1: sparse-mla sparse-raw fp8-576 none paged paged-split heads 64 launches [1]"},
		{"27 a flat prefill over fp8 gathers and is ragged", flat8, extendOver(100, 4000),
			"sparse-prefill 100: sparse-mla sparse-flat fp8-656 gather-bf16 ragged ragged heads 64 launches [100]"},
		{"28 it gathers without a prefix too", flat8, extend(2049),
			"dense-prefill 2048: dense-mha dense-ragged fp8-656 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat fp8-656 gather-bf16 ragged ragged heads 64 launches [1]"},
		{"29 its decode is paged and block", flat8, decode(9000),
			"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 64 launches [1]"},
		{"30 its verify is paged and block", flat8, NewBatch(ModeVerify, VerifyRequest(2, 9000)),
			"verify 2: sparse-mla sparse-block fp8-656 none paged paged-native2 heads 64 launches [2]"},
		{"31 mixed keeps prompts ragged and decodes paged", flat8,
			NewBatch(ModeMixed, ExtendRequest(10, 9000), DecodeRequest(5)), "sparse-prefill 10: sparse-mla " +
				"sparse-flat fp8-656 gather-bf16 ragged ragged heads 64 launches [10]\n" +
				"decode 1: sparse-mla sparse-block fp8-656 none paged paged-split heads 64 launches [1]"},
		{"32 a block prefill over raw rows rewrites pages",
			ours("sm90", kv("fp8"), kernelsOf("sparse-block", "sparse-raw")), extendOver(10, 9000),
			"sparse-prefill 10: sparse-mla sparse-block fp8-576 raw-to-block paged ragged heads 64 launches [10]"},
		{"33 its decode never converts", ours("sm90", kv("fp8"), kernelsOf("sparse-block", "sparse-raw")), decode(9000),
			"decode 1: sparse-mla sparse-raw fp8-576 none paged paged-split heads 64 launches [1]"},
		{"34 a flat prefill over raw rows gathers them", ours("sm90", kv("fp8-576"), kernelsOf("sparse-flat", "")),
			extendOver(10, 9000),
			"sparse-prefill 10: sparse-mla sparse-flat fp8-576 gather-bf16 ragged ragged heads 64 launches [10]"},
		{"a flat prefill over rows of pools gathers them, also those of rows without scores", pools8, extend(2100),
			"short-prefill 2051: sparse-mla sparse-flat fp8-528 gather-bf16 ragged k-only-with-indices heads 64 " +
				"launches [2051]\n" +
				"sparse-prefill 49: sparse-mla sparse-flat fp8-528 gather-bf16 ragged ragged heads 64 launches [49]"},
		{"requests with many gathered keys have launches of their own", pools8,
			NewBatch(ModeExtend, ExtendRequest(30, 100_000), ExtendRequest(20, 31_022), ExtendRequest(10, 5000)),
			"sparse-prefill 60: sparse-mla sparse-flat fp8-528 gather-bf16 ragged ragged heads 64 launches [50 10]"},
		{"decodes read rows of pools in place", pools8, decode(9000),
			"decode 1: sparse-mla sparse-pools fp8-528 none paged paged-split heads 64 launches [1]"},
		{"35 auto over bf16 is flat", ours("sm90", kernelsOf("auto", "")), extendOver(10, 9000),
			"sparse-prefill 10: sparse-mla sparse-flat bf16-1152 none paged ragged heads 64 launches [10]"},
		{"36 auto over fp8 is block", ours("sm90", kv("fp8"), kernelsOf("auto", "")), extendOver(10, 9000),
			"sparse-prefill 10: sparse-mla sparse-block fp8-656 none paged ragged heads 64 launches [10]"},
		{"37 auto over raw rows is raw", ours("cpu", kv("fp8"), kernelsOf("auto", "sparse-raw")), extendOver(10, 9000),
			"sparse-prefill 10: sparse-mla sparse-raw fp8-576 none paged ragged heads 16 launches [10]"},
		{"38 exact rows on cpu", ours("cpu", kv("exact")), extend(2049),
			"dense-prefill 2048: dense-mha dense-ragged f32-2304 gather-rows none k-only heads 16 launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat f32-2304 none paged ragged heads 16 launches [1]"},
		{"39 exact decode on cpu", ours("cpu", kv("f32")), decode(5),
			"decode 1: sparse-mla sparse-flat f32-2304 none paged paged-split heads 16 launches [1]"},
		{"40 dense off makes short rows sparse without scores", ours("cpu", off), extend(2049),
			"short-prefill 2048: sparse-mla sparse-flat bf16-1152 none paged k-only-with-indices heads 16 " +
				"launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [1]"},
		{"41 deterministic mode has no dense rows", ours("sm90", kv("fp8"), det), extend(2049),
			"short-prefill 2048: sparse-mla sparse-block fp8-656 none paged k-only-with-indices heads 64 " +
				"launches [2048]\n" +
				"sparse-prefill 1: sparse-mla sparse-block fp8-656 none paged ragged heads 64 launches [1]"},
		{"42 deterministic verify is split like decode", ours("sm90", det), NewBatch(ModeVerify, VerifyRequest(2, 9)),
			"verify 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [2]"},
		{"43 a layer without dense form", ours("cpu", func(s *setup) { s.model.LayerSupportsDense = false }),
			extend(10), "short-prefill 10: sparse-mla sparse-flat bf16-1152 none paged k-only-with-indices heads " +
				"16 launches [10]"},
		{"44 a lower threshold leaves rows between", ours("cpu", threshold(100)), extend(2049),
			"dense-prefill 100: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [100]\n" +
				"short-prefill 1948: sparse-mla sparse-flat bf16-1152 none paged k-only-with-indices heads 16 " +
				"launches [1948]\n" +
				"sparse-prefill 1: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [1]"},
		{"45 a higher threshold is dense above index_topk", ours("cpu", threshold(4096)), extend(5000),
			"dense-prefill 4096: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [4096]\n" +
				"sparse-prefill 904: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [904]"},
		{"46 a seed gives dense rows indices", cpu, seeded(extend(100)),
			"dense-prefill 100: dense-mha dense-ragged bf16-1152 gather-rows none k-only-with-indices heads 16 " +
				"launches [100]"},
		{"47 a seed above index_topk needs scores", ours("cpu", threshold(4096)), seeded(extend(100)),
			"dense-prefill 100: dense-mha dense-ragged bf16-1152 gather-rows none ragged heads 16 launches [100]"},
		{"48 dense calls are cut at the key capacity", cpu,
			Batch{Mode: ModeExtend, Requests: repeat(70, ExtendRequest(2000, 0))},
			"dense-prefill 140000: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches " +
				"[130000 10000]"},
		{"51 v4 prompts are flat", v4, extend(4096),
			"short-prefill 2051: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged k-only-with-indices heads 64 " +
				"launches [2051]\n" +
				"sparse-prefill 2045: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged ragged heads 64 " +
				"launches [2045]"},
		{"52 v4 decode is paged", v4, decode(9000),
			"decode 1: v4-paged v4-paged v4-584 none paged paged-split heads 64 launches [1]"},
		{"53 v4 draft layers are window only", v4, NewBatch(ModeDraft, DraftRequest(2, 9)),
			"draft 2: v4-paged v4-paged v4-584 none paged none heads 64 launches [2]"},
		{"54 deterministic v4 is paged throughout", ours("sm90", family(t, "deepseek_v4"), det), extendOver(12000,
			4000),
			"sparse-prefill 12000: v4-paged v4-paged v4-584 none paged ragged heads 64 launches [12000]"},
		{"55 v4 without sparse prefill is paged", ours("cpu", family(t, "deepseek_v4"),
			wish(func(p *Policy) { p.V4SparsePrefill = SparsePrefillOff })), extendOver(5, 4000),
			"sparse-prefill 5: v4-paged v4-paged v4-584 none paged ragged heads 16 launches [5]"},
		{"64 a v4 chunk of 32768 is one flat launch", v4, extendOver(32768, 4000),
			"sparse-prefill 32768: v4-sparse-prefill v4-flat v4-584 gather-bf16 ragged ragged heads 64 " +
				"launches [32768]"},
		{"69 a v4 chunk of 32768 in place", v4Paged, extendOver(32768, 4000),
			"sparse-prefill 32768: v4-paged v4-paged v4-584 none paged ragged heads 64 launches [32768]"},
		{"56 an idle batch has no segments", gpu, Batch{Mode: ModeIdle}, ""},
		{"57 48 heads are padded to 64", ours("sm90", heads(48)), decode(5),
			"decode 1: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [1]"},
		{"58 65 heads are padded to 128", ours("sm90", heads(65)), decode(5),
			"decode 1: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 128 launches [1]"},
		{"59 130 heads run on cpu", ours("cpu", heads(130)), decode(5),
			"decode 1: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 130 launches [1]"},
		{"60 a mixed batch of prompts alone is an extend", cpu, NewBatch(ModeMixed, ExtendRequest(5, 0)),
			"dense-prefill 5: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [5]"},
		{"61 a small index_topk moves the cut", ours("cpu", func(s *setup) { s.model.K = 128 }), extend(200),
			"dense-prefill 128: dense-mha dense-ragged bf16-1152 gather-rows none k-only heads 16 launches [128]\n" +
				"sparse-prefill 72: sparse-mla sparse-flat bf16-1152 none paged ragged heads 16 launches [72]"},
		{"62 a captured decode looks like an eager one", gpu, inGraph(GraphCapture, decode(7, 8)),
			"decode 2: sparse-mla sparse-flat bf16-1152 none paged paged-split heads 64 launches [2]"},
		{"63 many verify rows are cut between requests", ours("sm90", kv("fp8"),
			wish(func(p *Policy) { p.MaxTransient = 340 << 20 })),
			Batch{Mode: ModeVerify, Requests: repeat(3000, VerifyRequest(4, 100_000))},
			"verify 12000: sparse-mla sparse-block fp8-656 none paged paged-native4 heads 64 launches [9596 2404]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			p := build(t, c.s.resolve(t), c.b)
			lines := make([]string, len(p.Segments))
			for i := range p.Segments {
				lines[i] = line(&p.Segments[i])
			}
			if got := strings.Join(lines, "\n"); got != c.want {
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
			want(t, "runnable", p.Runnable, true)
			for i := range p.Segments {
				if s := &p.Segments[i]; len(s.Reasons) == 0 || len(s.Rejected) == 0 {
					t.Errorf("segment %s has %d reasons and %d rejections", s.Row, len(s.Reasons), len(s.Rejected))
				}
			}
		})
	}
}

// TestSparrowResolution checks that settings are resolved to a configuration or refused.
func TestSparrowResolution(t *testing.T) {
	for _, c := range []struct {
		name            string
		hw, kv          string
		prefill, decode string
		wantPrefill     Kernel
		wantDecode      Kernel
		layout, index   Layout
	}{
		{"cpu default", "cpu", "", "", "", SparseFlat, SparseFlat, BF16Row1152, IndexPage132},
		{"hopper default", "sm90", "auto", "", "", SparseFlat, SparseFlat, BF16Row1152, IndexPage132},
		{"fp8 is the block layout", "cpu", "fp8", "", "", SparseBlock, SparseBlock, FP8Row656, IndexPage132},
		{"block layout by name", "sm90", "fp8-656", "", "", SparseBlock, SparseBlock, FP8Row656, IndexPage132},
		{"block layout by its other name", "sm90", "FP8_BLOCK_656", "", "", SparseBlock, SparseBlock, FP8Row656,
			IndexPage132},
		{"raw layout by name", "sm90", "fp8-576", "", "", SparseRaw, SparseRaw, FP8Row576, IndexPage132},
		{"raw decode implies the raw layout", "sm90", "fp8", "", "sparse-raw", SparseRaw, SparseRaw, FP8Row576,
			IndexPage132},
		{"raw prefill implies raw decode", "sm90", "fp8", "sparse-raw", "", SparseRaw, SparseRaw, FP8Row576,
			IndexPage132},
		{"block prefill over raw decode", "cpu", "fp8", "sparse-block", "sparse-raw", SparseBlock, SparseRaw, FP8Row576,
			IndexPage132},
		{"flat prefill over fp8 defaults to block decode", "cpu", "fp8", "sparse-flat", "", SparseFlat, SparseBlock,
			FP8Row656, IndexPage132},
		{"exact", "cpu", "exact", "", "", SparseFlat, SparseFlat, F32Row2304, IndexF32Row512},
		{"alias flashmla_kv", "sm90", "fp8", "flashmla_kv", "flashmla_kv", SparseBlock, SparseBlock, FP8Row656,
			IndexPage132},
		{"alias trtllm", "sm90", "fp8", "trtllm", "trtllm", SparseRaw, SparseRaw, FP8Row576, IndexPage132},
		{"alias flashmla_sparse", "sm90", "bf16", "flashmla_sparse", "flashmla_sparse", SparseFlat, SparseFlat,
			BF16Row1152, IndexPage132},
		{"alias flashmla_auto", "sm90", "bf16", "flashmla_auto", "", Auto, SparseFlat, BF16Row1152, IndexPage132},
	} {
		t.Run(c.name, func(t *testing.T) {
			cfg := newSetup(t, c.hw, kv(c.kv), kernelsOf(c.prefill, c.decode)).resolve(t)
			want(t, "prefill", cfg.Prefill, c.wantPrefill)
			want(t, "decode", cfg.Decode, c.wantDecode)
			want(t, "layout", cfg.Layout, c.layout)
			want(t, "index layout", cfg.IndexLayout, c.index)
			want(t, "asked prefill", cfg.Asked.Prefill, c.prefill)
			want(t, "page", cfg.Page, 64)
		})
	}
	for _, c := range []struct {
		name            string
		hw, kv          string
		prefill, decode string
		code            Code
		try             string
	}{
		{"flat decode over fp8", "sm90", "fp8", "", "sparse-flat", E03,
			"--kv fp8 --prefill sparse-block --decode sparse-block"},
		{"auto decode", "sm90", "fp8", "", "auto", E02, "--kv fp8 --prefill sparse-block --decode sparse-block"},
		{"dense decode", "sm90", "", "", "dense-ragged", E02, ""},
		{"dense prefill", "sm90", "", "mha", "", E02, ""},
		{"raw prefill with block decode", "sm90", "fp8", "sparse-raw", "sparse-block", E04,
			"--kv fp8 --prefill sparse-block --decode sparse-block"},
		{"block over bf16", "cpu", "bf16", "sparse-block", "", E03,
			"--kv bf16 --prefill sparse-flat --decode sparse-flat"},
		{"block over the default", "cpu", "", "sparse-block", "", E03,
			"--kv fp8 --prefill sparse-block --decode sparse-block"},
		{"flat prefill with auto decode", "cpu", "fp8", "sparse-flat", "auto", E02,
			"--kv fp8 --prefill sparse-flat --decode sparse-block"},
		{"raw over bf16", "cpu", "bf16", "", "sparse-raw", E03, ""},
		{"block decode over raw rows", "cpu", "fp8-576", "", "sparse-block", E04, ""},
		{"raw prefill over block rows", "cpu", "fp8-656", "sparse-raw", "", E04, ""},
		{"amd", "gfx95", "", "", "", E01,
			"--hw cpu or --hw sm90, or --catalog public for the kernels of other engines"},
		{"a kernel of others", "sm90", "", "fa3", "", E02, "--prefill sparse-flat"},
		{"an unknown kernel", "sm90", "", "fastest", "", E02, ""},
		{"exact rows on hopper", "sm90", "f32", "", "", E05, "--kv bf16"},
		{"an unknown kv type", "cpu", "int4", "", "", E05, "--kv bf16"},
		{"the v4 layout for v3.2", "cpu", "v4-584", "", "", E05, "--kv bf16"},
		{"an index layout as kv type", "cpu", "index-fp8-132", "", "", E05, "--kv bf16"},
		{"a v4 kernel for v3.2", "cpu", "fp8", "v4-flat", "", E02, ""},
	} {
		t.Run("refuses "+c.name, func(t *testing.T) {
			e := newSetup(t, c.hw, kv(c.kv), kernelsOf(c.prefill, c.decode)).refused(t, c.code)
			if c.try != "" {
				want(t, "try", e.Try, c.try)
			}
			if e.Supported == "" {
				t.Errorf("nothing supported is named: %v", e)
			}
		})
	}
	t.Run("an alias is shown with its name", func(t *testing.T) {
		s := newSetup(t, "sm90", kv("fp8"), kernelsOf("flashmla_kv", ""))
		_, notices, _ := Resolve(s.hw, s.model, s.policy)
		if !slices.ContainsFunc(notices, func(n Notice) bool { return strings.Contains(n.Text, "sparse-block") }) {
			t.Errorf("notices %v", notices)
		}
	})
	t.Run("an old name is accepted and noticed", func(t *testing.T) {
		s := newSetup(t, "sm90", kv("fp8"), kernelsOf("nsa_flashmla_kv", ""))
		cfg, notices, err := Resolve(s.hw, s.model, s.policy)
		if err != nil {
			t.Fatal(err)
		}
		want(t, "prefill", cfg.Prefill, SparseBlock)
		if !slices.ContainsFunc(notices, func(n Notice) bool { return n.Level == NoticeDeprecated }) {
			t.Errorf("notices %v", notices)
		}
	})
	t.Run("portable kernels on hopper", func(t *testing.T) {
		portable := func(s *setup) { s.hw.Portable = true }
		cfg := newSetup(t, "sm90", portable).resolve(t)
		if !slices.ContainsFunc(cfg.Reasons, func(r Reason) bool {
			return strings.HasPrefix(r.Text, "kernels cuda-portable: they were requested")
		}) {
			t.Errorf("no reason for the portable kernels: %v", cfg.Reasons)
		}
		e := newSetup(t, "sm90", family(t, "v41"), portable).refused(t, E01)
		if !strings.Contains(e.Supported, "there are no kernels of it for sm90 with the portable kernels") {
			t.Error(e)
		}
	})
	t.Run("a threshold without a dense form is noticed", func(t *testing.T) {
		for name, c := range map[string]struct {
			tweaks []tweak
			warned bool
		}{
			"v32": {nil, false}, "v3": {[]tweak{family(t, "v3")}, false},
			"off":    {[]tweak{wish(func(p *Policy) { p.Dense = SwitchOff })}, true},
			"v3 off": {[]tweak{family(t, "v3"), wish(func(p *Policy) { p.Deterministic = true })}, true},
			"v4":     {[]tweak{family(t, "v4")}, true}, "pools": {[]tweak{family(t, "glm5_next")}, true},
		} {
			s := newSetup(t, "cpu", append(c.tweaks, wish(func(p *Policy) { p.DenseThreshold = 100 }))...)
			_, notices, err := Resolve(s.hw, s.model, s.policy)
			if err != nil {
				t.Fatal(err)
			}
			if warned := slices.ContainsFunc(notices, func(n Notice) bool {
				return n.Level == NoticeWarning && strings.Contains(n.Text, "dense threshold 100 has no effect")
			}); warned != c.warned {
				t.Errorf("%s: warned %v: %v", name, warned, notices)
			}
		}
	})
	t.Run("a model without an indexer scores and selects nothing", func(t *testing.T) {
		s := newSetup(t, "cpu", family(t, "v3"))
		_, notices, _ := Resolve(s.hw, s.model, s.policy)
		if last := notices[len(notices)-1].Text; !strings.HasSuffix(last, "keys, no indexer") {
			t.Errorf("summary %q", last)
		}
	})
	t.Run("rows over pools are cut in both types", func(t *testing.T) {
		for _, name := range []string{"bf16", "fp8"} {
			cfg := newSetup(t, "sm90", family(t, "glm5_next"), kv(name)).resolve(t)
			if !slices.ContainsFunc(cfg.Reasons, func(r Reason) bool {
				return strings.HasPrefix(r.Text, "rows over pools are cut after every 512 keys: ")
			}) {
				t.Errorf("%s: %v", name, cfg.Reasons)
			}
		}
	})
	t.Run("the last notice sums the configuration up", func(t *testing.T) {
		s := newSetup(t, "sm90", kv("fp8"))
		_, notices, _ := Resolve(s.hw, s.model, s.policy)
		last := notices[len(notices)-1].Text
		for _, w := range []string{"sparse-block", "fp8-656", "2048", "131072", "native", "stable"} {
			if !strings.Contains(last, w) {
				t.Errorf("summary %q lacks %s", last, w)
			}
		}
	})
}
