package public_test

import (
	"errors"
	"testing"

	"pgregory.net/rapid"

	"sparrow/plan"
	"sparrow/plan/public"
)

// TestContents checks the array values in the example of section 11 of the dispatch spec, and those of cases 39 to 43.
func TestContents(t *testing.T) {
	t.Run("the example of section 11", func(t *testing.T) {
		cfg := resolve(t, "sm90", kv("fp8"), kernels("flashmla_sparse", "flashmla_kv"),
			policy(func(p *public.Policy) { p.CP = public.CP{Kind: public.CPInterleave, Size: 8} }))
		p := build(t, cfg, batch(t, "extend:2+4,3+2"))
		want(t, "indexer", p.segment().Indexer.Kind, plan.IndexerRagged)
		p.wantContents(t, public.SeqlensExpanded, public.Filler.SeqlensExpanded, 5, 6, 3, 4, 5)
		p.wantContents(t, public.KStart, public.Filler.KStart, 0, 0, 6, 6, 6)
		p.wantContents(t, public.KEnd, public.Filler.KEnd, 5, 6, 9, 10, 11)
		p.wantContents(t, public.TopKOffset, public.Filler.TopKOffset, 0, 0, 6, 6, 6)
		p.wantContents(t, public.TokenToRequest, public.Filler.TokenToRequest, 0, 0, 1, 1, 1)
		p.wantContents(t, public.CacheSeqlens, public.Filler.CacheSeqlens, 6, 5)
		p.wantContents(t, public.CuSeqlensK, public.Filler.CuSeqlensK, 0, 6, 11)
		p.wantContents(t, public.CuSeqlensQ, public.Filler.CuSeqlensQ, 0, 2, 5)
	})
	t.Run("39 decode on hopper", func(t *testing.T) {
		p := build(t, resolve(t, "sm90"), batch(t, "decode:10,3000,2048"))
		p.wantContents(t, public.DSACacheSeqlens, public.Filler.DSACacheSeqlens, 10, 2048, 2048)
		p.wantShape(t, public.CtxLens2D, 3, 1)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 10, 3000, 2048)
		p.wantContents(t, public.DSACuK, public.Filler.DSACuK, 0, 10, 2058, 4106)
		p.wantContents(t, public.DSACuQ, public.Filler.DSACuQ, 0, 1, 2, 3)
		p.wantContents(t, public.CuSeqlensQ, public.Filler.CuSeqlensQ, 0, 1, 2, 3)
		p.wantShape(t, public.PagedSchedule, 133, 2)
	})
	t.Run("40 native verify", func(t *testing.T) {
		p := build(t, resolve(t, "sm100", drafts(4)), batch(t, "verify:4:100,5000"))
		p.wantContents(t, public.SeqlensExpanded, public.Filler.SeqlensExpanded, 101, 102, 103, 104, 5001, 5002, 5003,
			5004)
		p.wantShape(t, public.CtxLens2D, 2, 4)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 104, 104, 104, 104, 5004, 5004, 5004, 5004)
		want(t, "native n", p.segment().Indexer.NextN, 4)
		p.wantContents(t, public.CacheSeqlens, public.Filler.CacheSeqlens, 104, 5004)
	})
	t.Run("41 split verify", func(t *testing.T) {
		p := build(t, resolve(t, "sm90", kv("fp8"), drafts(4)), batch(t, "verify:4:100,5000"))
		p.wantShape(t, public.CtxLens2D, 8, 1)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 101, 102, 103, 104, 5001, 5002, 5003, 5004)
	})
	t.Run("42 draft lengths include the drafts", func(t *testing.T) {
		p := build(t, resolve(t, "sm100", drafts(4)), batch(t, "draft:4:104"))
		p.wantContents(t, public.SeqlensExpanded, public.Filler.SeqlensExpanded, 101, 102, 103, 104)
	})
	t.Run("43 a padded draft request is clamped at 0", func(t *testing.T) {
		p := build(t, resolve(t, "sm100", drafts(2)), batch(t, "draft:2:0"))
		p.wantContents(t, public.SeqlensExpanded, public.Filler.SeqlensExpanded, 0, 0)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 0, 0)
		p.wantContents(t, public.CacheSeqlens, public.Filler.CacheSeqlens, 0)
	})
	t.Run("padded requests have one key and their rows see none", func(t *testing.T) {
		b := batch(t, "verify:2:100")
		b.PaddedRows, b.Graph = 4, plan.GraphReplay
		p := build(t, resolve(t, "sm100", drafts(2)), b)
		p.wantContents(t, public.CacheSeqlens, public.Filler.CacheSeqlens, 102, 1)
		p.wantContents(t, public.SeqlensExpanded, public.Filler.SeqlensExpanded, 101, 102, 0, 0)
		p.wantContents(t, public.DSACacheSeqlens, public.Filler.DSACacheSeqlens, 101, 102, 0, 0)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 102, 102, 1, 1)
	})
	t.Run("v4 scores count compressed entries", func(t *testing.T) {
		p := build(t, resolve(t, "sm90", family(t, "deepseek_v4")), batch(t, "decode:4001,3"))
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 1000, 0)
	})
	t.Run("v4 prompts start at compressed entries", func(t *testing.T) {
		p := build(t, resolve(t, "sm90", family(t, "deepseek_v4")), batch(t, "extend:1+4002,2+5000"))
		p.wantContents(t, public.TopKOffset, public.Filler.TopKOffset, 0, 1000, 1000)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 1000, 1250, 1250)
	})
	t.Run("padding of a split path has one key to score", func(t *testing.T) {
		b := batch(t, "decode:100")
		b.PaddedRows = 2
		p := build(t, resolve(t, "sm90"), b)
		p.wantContents(t, public.CtxLens2D, public.Filler.CtxLens2D, 100, 1)
	})
	t.Run("the rows of a rank are refused, its requests are not", func(t *testing.T) {
		cfg := resolve(t, "sm90", policy(func(p *public.Policy) {
			p.CP = public.CP{Kind: public.CPInterleave,
				Size: 2}
		}))
		p := build(t, cfg, batch(t, "extend:40+3000"))
		want(t, "rows of a rank", p.segment().KernelRows, 20)
		if err := p.filler().SeqlensExpanded(make([]int32, 20)); !errors.Is(err, plan.E10) {
			t.Errorf("error %v, want %s", err, string(plan.E10))
		}
		p.wantContents(t, public.CacheSeqlens, public.Filler.CacheSeqlens, 3040)
	})
	t.Run("a wrong size is refused", func(t *testing.T) {
		f := build(t, resolve(t, "sm90"), batch(t, "decode:10,20")).filler()
		for name, fill := range map[string]func([]int32) error{
			"cache_seqlens": f.CacheSeqlens, "cu_seqlens_k": f.CuSeqlensK, "cu_seqlens_q": f.CuSeqlensQ,
			"seqlens_expanded": f.SeqlensExpanded, "dsa_cache_seqlens": f.DSACacheSeqlens,
			"dsa_cu_k": f.DSACuK, "dsa_cu_q": f.DSACuQ, "k_start": f.KStart, "k_end": f.KEnd,
			"topk_offset": f.TopKOffset, "token_to_request": f.TokenToRequest, "ctx_lens_2d": f.CtxLens2D,
			"paged_schedule": func(dst []int32) error { return f.PagedSchedule(dst, []int32{10, 20}) },
			"ctx":            func([]int32) error { return f.PagedSchedule(make([]int32, 266), []int32{10}) },
		} {
			wantLengthError(t, name+" of 7 elements", fill(make([]int32, 7)))
		}
	})
}

// TestPagedSchedule checks that starts are in order, that the first start is the origin and the last is the end, and
// that shares differ by at most one split.
func TestPagedSchedule(t *testing.T) {
	cfg := resolve(t, "sm90")
	sms := cfg.Hardware.SMs
	rapid.Check(t, func(rt *rapid.T) {
		lengths := rapid.SliceOfN(rapid.IntRange(0, 40000), 1, 70).Draw(rt, "lengths")
		b := plan.Batch{Mode: plan.ModeDecode}
		for _, n := range lengths {
			b.Requests = append(b.Requests, plan.DecodeRequest(n))
		}
		p, err := public.Build(cfg, b)
		if err != nil {
			rt.Fatal(err)
		}
		f := public.NewFiller(&cfg, &b, &p.Segments[0])
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
	f := build(t, resolve(t, "sm90", kv("fp8"), drafts(2)), batch(t, "verify:2:64x5000")).filler()
	seq, ctx, sched := make([]int32, 64), make([]int32, 128), make([]int32, 266)
	allocs := testing.AllocsPerRun(20, func() {
		for _, err := range []error{f.CacheSeqlens(seq), f.SeqlensExpanded(ctx), f.DSACacheSeqlens(ctx),
			f.CtxLens2D(ctx), f.PagedSchedule(sched, ctx)} {
			if err != nil {
				t.Fatal(err)
			}
		}
	})
	want(t, "allocations", allocs, 0)
}
