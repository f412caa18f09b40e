package inspect

import (
	"strings"

	"sparrow/internal/kv"
	"sparrow/internal/model/config"
	"sparrow/internal/model/family"
	"sparrow/internal/model/v41"
	"sparrow/layout"
	"sparrow/weight"
)

// Tables describes the n-gram tables of a model: their sizes, and how much is read for a token.
type Tables struct {
	Tables     int   `json:"tables"`
	Rows       int64 `json:"rows"`
	Bytes      int64 `json:"bytes"` // scales included
	TokenRows  int   `json:"token_rows"`
	TokenBytes int64 `json:"token_bytes"`
}

// table adds an n-gram table with the given number of values to the summary. A few of its rows are read for a token.
func (s *Summary) table(src *family.Source, t *weight.Tensor, values int64) {
	c, ok := src.Model.(*config.V41)
	if !ok || len(t.Shape) != 2 || t.Shape[0] == 0 {
		return
	}
	bytes := t.Bytes()
	if scale, ok := src.Weights.Tensor(strings.TrimSuffix(t.Name, "weight") + "scale"); ok {
		bytes += scale.Bytes()
	}
	if s.Tables == nil {
		s.Tables = &Tables{}
	}
	columns, rows := int64(c.Engram.Columns()), int64(t.Shape[0])
	s.Tables.Tables++
	s.Tables.Rows += rows
	s.Tables.Bytes += bytes
	s.Tables.TokenRows += int(columns)
	s.Tables.TokenBytes += columns * (bytes / rows)
	s.Parameters.Active += columns * (values / rows)
}

// cacheV41 computes the cache sizes of a V4.1 model. A token needs entries and indexer keys, once for all layers that
// use them; each running sequence needs window entries and the raw row of an incomplete pair.
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
