package public

import (
	"slices"
	"testing"

	"sparrow/plan"
)

const mib = 1 << 20

// TestMemory checks the memory sizes in sections 13 and 17 of the dispatch spec.
func TestMemory(t *testing.T) {
	t.Run("paged scores of 512 decodes over 160 Ki are 320 MiB", func(t *testing.T) {
		cfg := newSetup(t, "sm90").resolve(t)
		b := plan.Batch{Mode: plan.ModeDecode, Requests: repeat(512, plan.DecodeRequest(163840)),
			TablePages: 163840 / 64}
		s := only(t, build(t, cfg, b))
		want(t, "scores", int64(s.Indexer.RowsPerChunk)*int64(s.Indexer.ScoreWidth)*4, 320*mib)
		want(t, "transient", s.TransientBytes, 320*mib+512*2048*4)
	})
	t.Run("a paged launch holds accumulators for its rows and for every part", func(t *testing.T) {
		cfg := newSetup(t, "sm90", kv("fp8")).resolve(t)
		s := only(t, build(t, cfg, extend(12000)))
		want(t, "bytes", s.TransientBytes, 11622*2048*4+(11622+132)*64*513*4)
	})
	t.Run("the v4 workspace sums requests instead of squaring them", func(t *testing.T) {
		cfg := newSetup(t, "sm90", family(t, "deepseek_v4")).resolve(t)
		b := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(4096, 100000), plan.ExtendRequest(10, 0))
		s := only(t, build(t, cfg, b))
		rows := int64(4096+127+104096/4) + int64(10+10/4)
		attend := rows*1024 + 4106*640*4
		if s.TransientBytes < attend {
			t.Errorf("%d bytes, at least %d are needed", s.TransientBytes, attend)
		}
	})
	t.Run("converted pages are those of the batch, not of the pool", func(t *testing.T) {
		cfg := newSetup(t, "sm100", kv("fp8"), kernelsOf("flashmla_kv", "trtllm")).resolve(t)
		s := only(t, build(t, cfg, extendOver(10, 2991)))
		// With only ten rows, the partial results of the split take most of the memory, followed by the pages.
		want(t, "bytes", s.TransientBytes, 10*2048*4+(10+148)*64*513*4+47*64*656)
	})
	t.Run("scores are as wide as all requests", func(t *testing.T) {
		b := plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(100, 3000), plan.ExtendRequest(100, 4000))
		want(t, "width", only(t, build(t, newSetup(t, "sm90").resolve(t), b)).Indexer.ScoreWidth, 7200)
	})
	t.Run("chunked prefill follows memory", func(t *testing.T) {
		for bytes, tokens := range map[int64]int{0: 2048, 34 * 1_000_000_000: 2048, 35 * 1_000_000_000: 4096,
			60 * 1_000_000_000: 8192, 159 * 1_000_000_000: 8192,
			160 * 1_000_000_000: 16384} {
			want(t, "tokens", chunkByMemory(bytes), tokens)
		}
		cfg := newSetup(t, "sm90", wish(func(p *Policy) { p.DP = 4 })).resolve(t)
		want(t, "with data parallelism", cfg.ChunkedPrefill, 2048)
		want(t, "reason", slices.ContainsFunc(cfg.Reasons, func(r plan.Reason) bool {
			return r.Text == "prompts in chunks of 2048 tokens, the 8192 by device memory divided by 4 data-parallel "+
				"ranks"
		}), true)
	})
}
