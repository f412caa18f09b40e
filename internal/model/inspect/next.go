package inspect

import (
	"sparrow/internal/attn/hybrid"
	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/next"
	"sparrow/layout"
)

// nextPage is the number of tokens of a page, which has 64 keys of pools.
const nextPage = 64 * hybrid.Pool

// cacheNext computes the cache sizes of a model with linear attention. A token needs a row, and a quarter of a pool's
// key, in every layer with an indexer. Each running sequence needs a state, and snapshots at the ends of pages.
func (s *Summary) cacheNext(c *config.Next, memories []float64) {
	s.IndexLayers = 0
	for _, linear := range c.Linear.Layers {
		if linear {
			s.LinearLayers++
		} else {
			s.IndexLayers++
		}
	}
	for _, k := range []layout.Kind{layout.BF16Row1024, layout.FP8Row528, layout.F32Row2048} {
		main, err := layout.MainOf(k)
		if err != nil {
			continue
		}
		var index layout.Index = layout.IndexFP8{}
		if k == layout.F32Row2048 {
			index = layout.IndexF32{}
		}
		sizes := next.SizesOf(c, main, index, nextPage, 1)
		windows := kv.Window{Pages: 1, Tokens: hybrid.Window}.PerSequence(nextPage)
		out := CacheSize{Layout: k.String(), RowBytes: main.RowBytes(), IndexBytes: index.TokenBytes(),
			TokenBytes: max(sizes.Page/nextPage, 1), SequenceBytes: int64(windows)*sizes.Window + sizes.State}
		if c.NextN > 0 && s.Parameters.NextN > 0 {
			out.DraftedTokenBytes = next.SizesOf(c, main, index, nextPage, 2).Page / nextPage
		}
		s.fit(out, memories)
	}
}
