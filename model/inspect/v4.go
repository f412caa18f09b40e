package inspect

import (
	"sparrow/layout"
	"sparrow/model/config"
)

// cacheV4 sizes the pools of a V4 model: an entry for each token and layer, entries of the compressed streams, and the indexer keys of
// ratio-4 layers. Page padding counts.
func (s *Summary) cacheV4(c *config.V4, memories []float64) {
	const page = layout.V4PageSize
	for _, l := range []layout.V4{layout.V4Packed{}, layout.V4F32{}} {
		var keys layout.Index = layout.IndexFP8{}
		if l.Kind() == layout.V4F32Row2048 {
			keys = layout.IndexF32{}
		}
		out := CacheSize{Layout: l.Kind().String(), RowBytes: l.EntryBytes(), IndexBytes: keys.TokenBytes()}
		s.IndexLayers = 0
		var bytes int64
		for _, m := range c.Attention.Ratios {
			bytes += int64(l.PageBytes(page))
			if m > 0 {
				bytes += int64(l.PageBytes(page / m))
			}
			if m == 4 {
				s.IndexLayers++
				bytes += int64(keys.PageBytes(page / m))
			}
		}
		out.TokenBytes = bytes / page
		s.fit(out, memories)
	}
}
