package inspect

import (
	"sparrow/kv"
	"sparrow/layout"
	"sparrow/model/config"
	"sparrow/model/v41"
)

// cacheV41 sizes the pools of a V4.1 model. A token of context takes entries and indexer keys, once for all layers that
// share them; window entries and the state of an open pair are taken once for each running sequence.
func (s *Summary) cacheV41(c *config.V41, memories []float64) {
	const page = layout.V4PageSize
	s.IndexLayers = len(c.IndexSources)
	for _, l := range []struct {
		name  string
		entry layout.V4
		keys  layout.Index
	}{
		{layout.V41Row288.String(), layout.V41Entry{}, layout.IndexV41{}},
		{layout.V4F32Row2048.String(), layout.V4F32{}, layout.IndexF32{}},
	} {
		sizes := v41.SizesOf(c, l.entry, l.keys, page)
		windows := kv.Window{Pages: 1, Tokens: c.Attention.Window}.PerSequence(page)
		s.fit(CacheSize{Layout: l.name, RowBytes: l.entry.EntryBytes(), IndexBytes: l.keys.TokenBytes(),
			TokenBytes: max(sizes.Page/page, 1), SequenceBytes: int64(windows)*sizes.Window + sizes.State}, memories)
	}
}
