package public_test

import (
	"testing"

	"sparrow/plan"
	"sparrow/plan/public"
)

// TestShapes checks the array shapes that the cases in section 20 of the dispatch spec give.
func TestShapes(t *testing.T) {
	gather := resolve(t, "sm90", kv("fp8"), kernels("flashmla_sparse", "flashmla_kv"))
	t.Run("21 the flat table holds every key", func(t *testing.T) {
		build(t, resolve(t, "sm90", kv("fp8")), batch(t, "extend:256+256")).wantShape(t, public.PageTableFlat, 512)
	})
	t.Run("a bf16 prefix needs no flat table", func(t *testing.T) {
		build(t, resolve(t, "sm90"), batch(t, "extend:256+256")).wantShape(t, public.PageTableFlat)
	})
	t.Run("22 without prefix there is no flat table", func(t *testing.T) {
		build(t, resolve(t, "sm90", kv("fp8")), batch(t, "extend:512")).wantShape(t, public.PageTableFlat)
	})
	t.Run("a dense plan has no arrays of a selection", func(t *testing.T) {
		for _, text := range []string{"extend:512", "extend:256+256", "extend:100,2048"} {
			p := build(t, resolve(t, "sm90", kv("fp8")), batch(t, text))
			for _, name := range []public.ArrayName{public.SplitMetadata, public.NumSplits, public.PagedSchedule,
				public.CtxLens2D, public.DSACacheSeqlens, public.TopKOffset, public.TopKPlan, public.KStart,
				public.KEnd, public.TokenToRequest, public.Selection} {
				p.wantShape(t, name)
			}
			want(t, text, p.plan.Segments[0].Form, plan.FormDenseMHA)
		}
	})
	t.Run("28 padded rows have lengths", func(t *testing.T) {
		b := batch(t, "extend:100")
		b.Graph, b.PaddedRows = plan.GraphPiecewise, 128
		p := build(t, resolve(t, "sm90"), b)
		p.wantShape(t, public.DSACacheSeqlens, 128)
		lens := p.contents(t, public.DSACacheSeqlens, public.Filler.DSACacheSeqlens)
		want(t, "last real row", lens[99], 100)
		want(t, "first padded row", lens[100], 0)
	})
	t.Run("32 the gather holds 8192 rows", func(t *testing.T) {
		build(t, gather, batch(t, "extend:4096+4096")).wantShape(t, public.PageTableFlat, 8192)
		p := build(t, gather, batch(t, "extend:8192"))
		p.wantShape(t, public.PageTableFlat)
		p.wantShape(t, public.TopKOffset, 8192)
	})
	t.Run("tables repeat for every row of a verify", func(t *testing.T) {
		cfg := resolve(t, "sm100", drafts(4))
		p := build(t, cfg, batch(t, "verify:4:100,5000"))
		p.wantShape(t, public.RealPageTable, 8, 128)
		p.wantShape(t, public.PageTable1, 8, 8192)
		build(t, cfg, batch(t, "decode:100,5000")).wantShape(t, public.RealPageTable, 2, 128)
	})
	t.Run("v4 prompts combine window and selection", func(t *testing.T) {
		cfg := resolve(t, "sm90", family(t, "deepseek_v4"))
		build(t, cfg, batch(t, "extend:4096+100000,10")).wantShape(t, public.CombinedIndices, 4106, 640)
	})
	t.Run("v4 decodes pad each list of indices to 64", func(t *testing.T) {
		odd := func(m *plan.Model, _ *public.Policy) { m.Window, m.K = 100, 192 }
		p := build(t, resolve(t, "sm90", family(t, "deepseek_v4"), odd), batch(t, "decode:9000,12"))
		p.wantShape(t, public.WindowIndices, 2, 128)
		p.wantShape(t, public.ExtraIndices, 2, 192)
		p.wantShape(t, public.CombinedIndices)
	})
	t.Run("only cuda has lengths of paged scores", func(t *testing.T) {
		build(t, resolve(t, "sm90"), batch(t, "decode:5000,6")).wantShape(t, public.CtxLens2D, 2, 1)
		build(t, resolve(t, "gfx95"), batch(t, "decode:5000,6")).wantShape(t, public.CtxLens2D)
	})
	t.Run("tables of captured graphs hold the whole context", func(t *testing.T) {
		for _, mode := range []plan.GraphMode{plan.GraphCapture, plan.GraphReplay} {
			b := batch(t, "decode:5,6")
			b.Graph = mode
			build(t, resolve(t, "sm90"), b).wantShape(t, public.RealPageTable, 2, 163840/64)
			b = batch(t, "verify:4:5,6")
			b.Graph = mode // drafts may lie beyond the context
			build(t, resolve(t, "sm100", drafts(4)), b).wantShape(t, public.RealPageTable, 8, 163840/64+1)
			b = batch(t, "decode:5,6")
			b.Graph, b.TablePages = mode, 4
			build(t, resolve(t, "sm90"), b).wantShape(t, public.RealPageTable, 2, 4)
		}
		b := batch(t, "extend:100")
		b.Graph = plan.GraphPiecewise // its indexer and attention run eagerly
		build(t, resolve(t, "sm90"), b).wantShape(t, public.RealPageTable, 1, 2)
	})
	t.Run("a split schedule has parts for the heads of a block", func(t *testing.T) {
		heads := func(m *plan.Model, _ *public.Policy) { m.Heads = 128 }
		p := build(t, resolve(t, "sm90", kv("fp8"), heads), batch(t, "decode:5,6"))
		p.wantShape(t, public.SplitMetadata, 66, 8)
		p.wantShape(t, public.NumSplits, 3)
	})
}

// TestWideTable checks which batches need the page table with an entry for each token (section 14.6 of the dispatch
// spec).
func TestWideTable(t *testing.T) {
	wide := func(hw, text string, wishes ...wish) bool {
		return build(t, resolve(t, hw, wishes...), batch(t, text)).shape(public.PageTable1) != nil
	}
	want(t, "plain decode on cuda", wide("sm90", "decode:5"), false)
	want(t, "verify without configured drafts", wide("sm90", "verify:3:100"), true)
	want(t, "verify of one row without configured drafts", wide("sm90", "verify:1:100"), false)
	want(t, "draft of one row without configured drafts", wide("sm90", "draft:1:100"), true)
	want(t, "decode with speculation", wide("sm90", "decode:5", drafts(2)), true)
	unfused := policy(func(p *public.Policy) { p.Fused = plan.SwitchOff })
	hisparse := policy(func(p *public.Policy) { p.HiSparse = true })
	want(t, "decode without fusion", wide("sm90", "decode:5", unfused), true)
	want(t, "decode on amd", wide("gfx95", "decode:5"), true)
	want(t, "decode with hisparse", wide("sm90", "decode:5", hisparse), true)
	v4 := family(t, "deepseek_v4")
	want(t, "v4 decode on hopper", wide("sm90", "decode:5", v4), false)
	want(t, "v4 decode on a workstation", wide("sm120", "decode:5", v4), true)
	want(t, "a sparse prompt", wide("sm90", "extend:3000"), true)
	t.Run("dropping it saves 315 of 320 MiB", func(t *testing.T) {
		b := batch(t, "decode:512x5")
		b.TablePages = 163840 / 64
		p := build(t, resolve(t, "sm90"), b)
		p.wantShape(t, public.RealPageTable, 512, 2560) // the table has 5 MiB
	})
}
