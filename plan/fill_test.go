package plan

import (
	"testing"

	"pgregory.net/rapid"
)

// TestArrayContents checks the example of dispatch section 11 and the values
// of cases 39 to 43.
func TestArrayContents(t *testing.T) {
	public := func(hw string, tweaks ...tweak) Config {
		return newSetup(t, CatalogPublic, hw, tweaks...).resolve(t)
	}
	t.Run("the example of section 11", func(t *testing.T) {
		cfg := public("sm90", kv("fp8"), kernelsOf("flashmla_sparse", "flashmla_kv"), wish(func(p *Policy) { p.CP = CP{CPInterleave, 8} }))
		b := NewBatch(ModeExtend, ExtendRequest(2, 4), ExtendRequest(3, 2))
		s := only(t, build(t, cfg, b))
		want(t, "indexer", s.Indexer.Kind, IndexerRagged)
		wantInts(t, "seqlens_expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{5, 6, 3, 4, 5})
		wantInts(t, "k_start", filled(t, &cfg, &b, s, KStart, Filler.KStart), []int32{0, 0, 6, 6, 6})
		wantInts(t, "k_end", filled(t, &cfg, &b, s, KEnd, Filler.KEnd), []int32{5, 6, 9, 10, 11})
		wantInts(t, "topk_offset", filled(t, &cfg, &b, s, TopKOffset, Filler.TopKOffset), []int32{0, 0, 6, 6, 6})
		wantInts(t, "token_to_request", filled(t, &cfg, &b, s, TokenToRequest, Filler.TokenToRequest), []int32{0, 0, 1, 1, 1})
		wantInts(t, "cache_seqlens", filled(t, &cfg, &b, s, CacheSeqlens, Filler.CacheSeqlens), []int32{6, 5})
		wantInts(t, "cu_seqlens_k", filled(t, &cfg, &b, s, CuSeqlensK, Filler.CuSeqlensK), []int32{0, 6, 11})
		wantInts(t, "cu_seqlens_q", filled(t, &cfg, &b, s, CuSeqlensQ, Filler.CuSeqlensQ), []int32{0, 2, 5})
	})
	t.Run("39 decode on hopper", func(t *testing.T) {
		cfg, b := public("sm90"), decode(10, 3000, 2048)
		s := only(t, build(t, cfg, b))
		wantInts(t, "dsa lens", filled(t, &cfg, &b, s, DSACacheSeqlens, Filler.DSACacheSeqlens), []int32{10, 2048, 2048})
		wantInts(t, "ctx_2d shape", shapeOfArray(s, CtxLens2D), []int{3, 1})
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{10, 3000, 2048})
		wantInts(t, "dsa_cu_k", filled(t, &cfg, &b, s, DSACuK, Filler.DSACuK), []int32{0, 10, 2058, 4106})
		wantInts(t, "dsa_cu_q", filled(t, &cfg, &b, s, DSACuQ, Filler.DSACuQ), []int32{0, 1, 2, 3})
		wantInts(t, "cu_seqlens_q", filled(t, &cfg, &b, s, CuSeqlensQ, Filler.CuSeqlensQ), []int32{0, 1, 2, 3})
		wantInts(t, "schedule shape", shapeOfArray(s, PagedSchedule), []int{133, 2})
	})
	t.Run("40 native verify", func(t *testing.T) {
		cfg, b := public("sm100", drafts(4)), verify(100, 5000)
		s := only(t, build(t, cfg, b))
		wantInts(t, "expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{101, 102, 103, 104, 5001, 5002, 5003, 5004})
		wantInts(t, "ctx_2d shape", shapeOfArray(s, CtxLens2D), []int{2, 4})
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{104, 104, 104, 104, 5004, 5004, 5004, 5004})
		want(t, "native n", s.Indexer.NextN, 4)
		wantInts(t, "cache_seqlens", filled(t, &cfg, &b, s, CacheSeqlens, Filler.CacheSeqlens), []int32{104, 5004})
	})
	t.Run("41 split verify", func(t *testing.T) {
		cfg, b := public("sm90", kv("fp8"), drafts(4)), verify(100, 5000)
		s := only(t, build(t, cfg, b))
		wantInts(t, "ctx_2d shape", shapeOfArray(s, CtxLens2D), []int{8, 1})
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{101, 102, 103, 104, 5001, 5002, 5003, 5004})
	})
	t.Run("42 draft lengths include the drafts", func(t *testing.T) {
		cfg, b := public("sm100", drafts(4)), draft(104)
		s := only(t, build(t, cfg, b))
		wantInts(t, "expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{101, 102, 103, 104})
	})
	t.Run("43 a padded draft request is clamped at 0", func(t *testing.T) {
		cfg, b := public("sm100", drafts(2)), draft(0)
		s := only(t, build(t, cfg, b))
		wantInts(t, "expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{0, 0})
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{0, 0})
		wantInts(t, "cache_seqlens", filled(t, &cfg, &b, s, CacheSeqlens, Filler.CacheSeqlens), []int32{0})
	})
	t.Run("padded requests have one key and their rows see none", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "sm90", drafts(2)).resolve(t)
		b := verify(100)
		b.PaddedRows, b.Graph = 4, GraphReplay
		s := only(t, build(t, cfg, b))
		wantInts(t, "cache_seqlens", filled(t, &cfg, &b, s, CacheSeqlens, Filler.CacheSeqlens), []int32{102, 1})
		wantInts(t, "expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{101, 102, 0, 0})
		wantInts(t, "dsa lens", filled(t, &cfg, &b, s, DSACacheSeqlens, Filler.DSACacheSeqlens), []int32{101, 102, 0, 0})
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{102, 102, 1, 1})
	})
	t.Run("a sparse segment counts only its own rows but all keys", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", func(s *setup) { s.model.K = 4 }).resolve(t)
		b := NewBatch(ModeExtend, ExtendRequest(6, 0), ExtendRequest(2, 5))
		p := build(t, cfg, b)
		s := &p.Segments[1]
		want(t, "row kind", s.Row, RowSparsePrefill)
		wantInts(t, "expanded", filled(t, &cfg, &b, s, SeqlensExpanded, Filler.SeqlensExpanded), []int32{5, 6, 6, 7})
		wantInts(t, "k_start", filled(t, &cfg, &b, s, KStart, Filler.KStart), []int32{0, 0, 6, 6})
		wantInts(t, "k_end", filled(t, &cfg, &b, s, KEnd, Filler.KEnd), []int32{5, 6, 12, 13})
	})
	t.Run("v4 scores count compressed entries", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", family(t, "deepseek_v4")).resolve(t)
		b := decode(4001, 3)
		s := only(t, build(t, cfg, b))
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{1000, 0})
	})
	t.Run("v4 prompts start at compressed entries", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "cpu", family(t, "deepseek_v4")).resolve(t)
		b := NewBatch(ModeExtend, ExtendRequest(1, 4002), ExtendRequest(2, 5000))
		s := only(t, build(t, cfg, b))
		wantInts(t, "k_start", filled(t, &cfg, &b, s, KStart, Filler.KStart), []int32{0, 1000, 1000})
		wantInts(t, "k_end", filled(t, &cfg, &b, s, KEnd, Filler.KEnd), []int32{1000, 2250, 2250})
	})
	t.Run("padding of a split path has one key to score", func(t *testing.T) {
		cfg := newSetup(t, CatalogSparrow, "sm90").resolve(t)
		b := decode(100)
		b.PaddedRows = 2
		s := only(t, build(t, cfg, b))
		wantInts(t, "ctx_2d", filled(t, &cfg, &b, s, CtxLens2D, Filler.CtxLens2D), []int32{100, 1})
	})
	t.Run("a wrong size is refused", func(t *testing.T) {
		cfg, b := public("sm90"), decode(10, 20)
		s := only(t, build(t, cfg, b))
		f := NewFiller(&cfg, &b, s)
		for name, fill := range map[string]func([]int32) error{
			"cache_seqlens": f.CacheSeqlens, "cu_seqlens_k": f.CuSeqlensK, "cu_seqlens_q": f.CuSeqlensQ,
			"seqlens_expanded": f.SeqlensExpanded, "dsa_cache_seqlens": f.DSACacheSeqlens, "dsa_cu_k": f.DSACuK, "dsa_cu_q": f.DSACuQ,
			"k_start": f.KStart, "k_end": f.KEnd, "topk_offset": f.TopKOffset, "token_to_request": f.TokenToRequest, "ctx_lens_2d": f.CtxLens2D,
			"paged_schedule": func(dst []int32) error { return f.PagedSchedule(dst, []int32{10, 20}) },
			"ctx":            func([]int32) error { return f.PagedSchedule(make([]int32, 266), []int32{10}) },
		} {
			if err := fill(make([]int32, 7)); err == nil {
				t.Errorf("%s took 7 elements", name)
			} else {
				wantError(t, err, E26)
			}
		}
	})
}

// TestPagedSchedule: starts are in order, the first is the origin, the last is
// the end, and shares differ by at most one split.
func TestPagedSchedule(t *testing.T) {
	cfg := newSetup(t, CatalogSparrow, "sm90").resolve(t)
	sms := cfg.Hardware.SMs
	rapid.Check(t, func(rt *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 40000), 1, 70).Draw(rt, "lengths")
		b := decode(lengths...)
		p, err := Build(cfg, b)
		if err != nil {
			rt.Fatal(err)
		}
		f := NewFiller(&cfg, &b, &p.Segments[0])
		ctx, dst := make([]int32, len(lengths)), make([]int32, 2*(sms+1))
		if err := f.CtxLens2D(ctx); err != nil {
			rt.Fatal(err)
		}
		if err := f.PagedSchedule(dst, ctx); err != nil {
			rt.Fatal(err)
		}
		before := make([]int, len(ctx)+1)
		for i, c := range ctx {
			before[i+1] = before[i] + (int(c)+255)/256
		}
		total, last := before[len(ctx)], 0
		for sm := range sms + 1 {
			row, split := int(dst[2*sm]), int(dst[2*sm+1])
			at := before[row] + split
			if row < len(ctx) && at >= before[row+1] {
				rt.Fatalf("multiprocessor %d starts past row %d: split %d", sm, row, split)
			}
			share := at - last
			if sm == 0 && at != 0 || sm > 0 && (share < total/sms || share > (total+sms-1)/sms) {
				rt.Fatalf("multiprocessor %d starts at split %d after %d of %d", sm, at, last, total)
			}
			last = at
		}
		if last != total {
			rt.Fatalf("the schedule ends at %d of %d", last, total)
		}
	})
}

func TestFillAllocatesNothing(t *testing.T) {
	cfg := newSetup(t, CatalogSparrow, "sm90", kv("fp8"), drafts(2)).resolve(t)
	b := Batch{Mode: ModeVerify, Requests: repeat(64, Request{Seq: 5000})}
	p := build(t, cfg, b)
	f := NewFiller(&cfg, &b, &p.Segments[0])
	seq, ctx, sched := make([]int32, 64), make([]int32, 128), make([]int32, 266)
	allocs := testing.AllocsPerRun(20, func() {
		for _, err := range []error{f.CacheSeqlens(seq), f.SeqlensExpanded(ctx), f.DSACacheSeqlens(ctx), f.CtxLens2D(ctx), f.PagedSchedule(sched, ctx)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	want(t, "allocations", allocs, 0)
}
