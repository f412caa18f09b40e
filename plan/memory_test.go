package plan

import (
	"strings"
	"testing"
)

const mib = 1 << 20

// TestLimitsAndMemory checks the limits and memory sizes in sections 13 and 17 of the dispatch spec.
func TestLimitsAndMemory(t *testing.T) {
	v32 := model(t, "deepseek_v32", 16)
	t.Run("a paged launch takes 11622 rows of 232448 bytes", func(t *testing.T) {
		hw := hardware(t, "sm90")
		l := hw.PagedRowLimit()
		want(t, "L", l, 11622)
		if 4*(5*l+1) > hw.SmemOptin || 4*(5*(l+1)+1) <= hw.SmemOptin {
			t.Errorf("%d rows are not the most that fit", l)
		}
		want(t, "L where five words fit exactly but not the sixth", (&Hardware{SmemOptin: 200}).PagedRowLimit(), 9)
		want(t, "without shared memory", (&Hardware{}).PagedRowLimit(), 0)
	})
	t.Run("split accumulators of 8192 rows", func(t *testing.T) {
		hw := hardware(t, "sm90")
		for heads, gib := range map[int]float64{64: 1.02, 128: 2.0} {
			bytes := float64((8192+hw.SplitParts(heads))*heads*512*4) / (1 << 30)
			if bytes < gib-0.02 || bytes > gib+0.02 {
				t.Errorf("%d heads: %.3f GiB, want %.2f", heads, bytes, gib)
			}
		}
		want(t, "parts for 64 heads", hw.SplitParts(64), 132)
		want(t, "parts for 128 heads", hw.SplitParts(128), 66)
		blackwell := hardware(t, "sm100")
		want(t, "parts on blackwell", blackwell.SplitParts(128), 148)
		want(t, "accumulator row", accumulatorRow(64), 64*(512+1)*4)
	})
	t.Run("a bf16 gather of 131072 keys is 144 MiB", func(t *testing.T) {
		want(t, "bytes", 131072*latentRowBytes(&Model{Family: DeepSeekV32}, BF16), 144*mib)
	})
	t.Run("dense up-projection of 131072 keys and 16 heads is 1.25 GiB", func(t *testing.T) {
		want(t, "bytes", 131072*upProjectedBytes(&v32, BF16), 1280*mib)
	})
	t.Run("unchunked scores of 8192 rows over 131072 keys are 4 GiB", func(t *testing.T) {
		c := held{scoreRow: 131072 * 4}
		want(t, "bytes", c.bytes(load{chunk: 8192}), 4096*mib)
	})
	t.Run("v4 workspaces sum requests", func(t *testing.T) {
		cfg := newSetup(t, "sm90", family(t, "deepseek_v4")).resolve(t)
		s := &Segment{Form: FormV4SparsePrefill}
		want(t, "a long span", gatheredRows(&cfg, s, 4096, 104096), 4096+127+104096/4)
		want(t, "a short span", gatheredRows(&cfg, s, 10, 10), 12)
	})
	t.Run("converted pages are those of a span", func(t *testing.T) {
		cfg := newSetup(t, "sm90", kv("fp8")).resolve(t)
		want(t, "rows", gatheredRows(&cfg, &Segment{Convert: ConvertRawToBlock}, 10, 3001), 47*64)
	})
	t.Run("bytes per token of every layout", func(t *testing.T) {
		for l, n := range map[Layout]int{BF16Row1152: 1152, FP8Row656: 656, FP8Row576: 576, F32Row2304: 2304,
			V4Row584: 584, IndexPage132: 132, IndexF32Row512: 512, LayoutNone: 0} {
			want(t, l.String(), l.BytesPerToken(), n)
		}
	})
	t.Run("v4 selections are padded to multiples of 64 and 128", func(t *testing.T) {
		m := model(t, "deepseek_v4", 16)
		want(t, "flash prefill", m.SelectionWidth(FormV4SparsePrefill), 640)
		m.K = 1000
		want(t, "odd prefill", m.SelectionWidth(FormV4SparsePrefill), 1152)
		want(t, "odd paged", m.SelectionWidth(FormV4Paged), 128+1024)
	})
	t.Run("our kernels keep parts of some rows at a time", func(t *testing.T) {
		cfg := newSetup(t, "sm90", kv("fp8")).resolve(t)
		s := &build(t, cfg, extendOver(12000, 2048)).Segments[0]
		// A launch computes 32*132/4 rows at a time. Each row has 4 segments of 512 keys, and each segment holds 64
		// heads of 512 float16 values and 4 figures for each of 16 heads.
		parts := int64(1056 * 4 * (64*512*2 + 16*16))
		row, rows := sparseScratch(132, 16, 2048, 2048, 512)
		want(t, "parts", row*rows, parts)
		want(t, "bytes", s.TransientBytes, 12000*2048*4+max(parts,
			int64(s.Indexer.RowsPerChunk*s.Indexer.ScoreWidth*4+14048*132)))
		row, rows = sparseScratch(132, 128, 8192+128, 8192+128, 512)
		want(t, "rows of 15 segments and 2 units at a time", rows, 32*132/30)
		want(t, "bytes of one", row, 15*(2*64*512*2+128*16))
		row, _ = sparseScratch(132, 64, 640, 640, 512)
		want(t, "rows of 640 keys stay whole", row, 0)
		row, _ = sparseScratch(132, 64, 192, 8192+128, 512)
		want(t, "bytes of a row of 192 keys that is cut as if it were longer", row, 2*(64*512*2+64*16))
		row, rows = sparseScratch(132, 128, 2048, 2048, 256)
		want(t, "rows of 8 segments and 2 units at a time", rows, 32*132/16)
		want(t, "bytes of one cut after 256 keys", row, 8*(2*64*512*2+128*16))
		row, _ = sparseScratch(132, 128, 2048, 2048, 0)
		want(t, "bytes of a row that is not cut", row, 0)
		whole := newSetup(t, "sm90").resolve(t)
		want(t, "bf16 rows stay whole", heldBy(&whole, sparrowCatalogue.Entry(SparseFlat), &build(t, whole,
			decode(9)).Segments[0], 64).attendRow, 0)
	})
	t.Run("gathered rows of pools have 1024 bytes, up to the capacity of a launch", func(t *testing.T) {
		cfg := newSetup(t, "sm90", family(t, "glm5_next"), kv("fp8"), kernelsOf("sparse-flat", "")).resolve(t)
		const selected = (4*512 + 3) * 4 // bytes of the slots of a row
		s := only(t, build(t, cfg, extendOver(300, 9000)))
		want(t, "bytes", s.TransientBytes, 300*selected+9300*1024)
		b := Batch{Mode: ModeExtend, Requests: repeat(4, ExtendRequest(50, 100_000))}
		s = only(t, build(t, cfg, b))
		want(t, "launches", len(s.Launches), 4)
		want(t, "bytes of a launch", s.TransientBytes, 50*selected+100_050*1024)
	})
	t.Run("scores are as wide as the longest request", func(t *testing.T) {
		b := NewBatch(ModeExtend, ExtendRequest(100, 3000), ExtendRequest(100, 4000))
		ours := newSetup(t, "sm90").resolve(t)
		want(t, "ours", only(t, build(t, ours, b)).Indexer.ScoreWidth, 4100)
	})
	t.Run("scores are chunked above the budget only", func(t *testing.T) {
		cfg := newSetup(t, "sm90").resolve(t)
		chunk := func(cfg Config, rows, keys int) int {
			return only(t, build(t, cfg, extendOver(rows, keys-rows))).Indexer.RowsPerChunk
		}
		want(t, "240 MB", chunk(cfg, 1000, 60000), 1000)
		want(t, "280 MB", chunk(cfg, 1000, 70000), (256*mib)/(4*70000))
		small := cfg
		small.ScoreCap = mib
		want(t, "just below eight million scores", chunk(small, 100, 79999), 100)
		want(t, "eight million scores", chunk(small, 100, 80000), mib/(4*80000))
	})
}

func TestReserve(t *testing.T) {
	ours := func(bytes int64, tweaks ...tweak) Config {
		return newSetup(t, "sm90",
			append(tweaks, kv("fp8"), wish(func(p *Policy) { p.MaxTransient = bytes }))...).resolve(t)
	}
	t.Run("rows are sliced to fit", func(t *testing.T) {
		cfg := ours(256 * mib)
		s := &build(t, cfg, extendOver(8000, 3000)).Segments[0]
		if len(s.Launches) < 2 || s.TransientBytes > 256*mib {
			t.Errorf("launches %v, %d bytes", launchRows(s), s.TransientBytes)
		}
		free := ours(0)
		if w := &build(t, free, extendOver(8000, 3000)).Segments[0]; len(w.Launches) != 1 ||
			w.TransientBytes <= 256*mib {
			t.Errorf("without a reserve: launches %v, %d bytes", launchRows(w), w.TransientBytes)
		}
	})
	t.Run("dense rows are sliced between requests", func(t *testing.T) {
		cfg := ours(100 * mib) // with 16 heads a key takes 1152 + 16*320*2 bytes
		s := only(t, build(t, cfg, Batch{Mode: ModeExtend, Requests: repeat(10, ExtendRequest(2000, 0))}))
		wantInts(t, "launches", launchRows(s), []int{8000, 8000, 4000})
		want(t, "bytes", s.TransientBytes, 8000*(1152+16*320*2)+16*8002) // the last term is a tile for each row
	})
	t.Run("scores shrink to what a row leaves", func(t *testing.T) {
		cfg := newSetup(t, "cpu", func(s *setup) { s.model.Context = 60000 },
			wish(func(p *Policy) { p.MaxTransient = 9 * mib })).resolve(t)
		s := only(t, build(t, cfg, extendOver(1000, 50000)))
		per := int64(s.Indexer.RowsPerChunk)*51000*4 + 51000*132
		if s.Indexer.RowsPerChunk < 2 || per > 9*mib || len(s.Launches) > 8 {
			t.Errorf("chunks of %d rows in launches %v", s.Indexer.RowsPerChunk, launchRows(s))
		}
	})
	t.Run("a dense form that cannot fit is off, with a reason", func(t *testing.T) {
		cfg := ours(64*mib, func(s *setup) { s.model.Heads = 128 })
		want(t, "dense", cfg.DenseOK, false)
		if len(cfg.DenseAgainst) != 1 || !strings.Contains(cfg.DenseAgainst[0], "more than the limit of") {
			t.Errorf("against dense: %v", cfg.DenseAgainst)
		}
	})
	t.Run("a row that cannot fit is refused alone", func(t *testing.T) {
		cfg := newSetup(t, "cpu", kv("fp8"), kernelsOf("sparse-flat", ""), func(s *setup) {
			s.model.Context = 10000
		},
			wish(func(p *Policy) { p.MaxTransient = 16 * mib })).resolve(t)
		_, err := Build(cfg, extendOver(1, 20000))
		wantError(t, err, E17)
		build(t, cfg, extendOver(1, 9999))
	})
}
