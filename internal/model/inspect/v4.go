package inspect

import (
	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/v4"
	"sparrow/layout"
)

// cacheV4 computes the cache sizes of a V4 model. A token needs compressed entries and indexer keys; each running
// sequence needs window entries and the raw rows of incomplete groups. Page padding is included.
func (s *Summary) cacheV4(c *config.V4, memories []float64) {
	const page = layout.V4PageSize
	s.IndexLayers = 0
	for _, m := range c.Attention.Ratios {
		if m == 4 {
			s.IndexLayers++
		}
	}
	for _, l := range []struct {
		name  string
		entry layout.V4
		keys  layout.Index
	}{
		{layout.V4Row584.String(), layout.V4Packed{}, layout.IndexFP8{}},
		{layout.V4Row584.String() + ", fp4 index", layout.V4Packed{}, layout.IndexFP4{}},
		{layout.V4F32Row2048.String(), layout.V4F32{}, layout.IndexF32{}},
	} {
		sizes := v4.SizesOf(c, l.entry, l.keys, page)
		windows := kv.Window{Pages: 1, Tokens: c.Attention.Window}.PerSequence(page)
		out := CacheSize{Layout: l.name, RowBytes: l.entry.EntryBytes(), IndexBytes: l.keys.TokenBytes(),
			TokenBytes: max(sizes.Page/page, 1), SequenceBytes: int64(windows)*sizes.Window + sizes.State}
		s.fit(out, memories)
	}
}
