package v4

import (
	"sparrow/internal/attn/dual"
	"sparrow/internal/model/config"
	"sparrow/layout"
)

// Sizes holds the sizes of the cache over all layers, in bytes.
type Sizes struct {
	Page   int64 // bytes of compressed entries and indexer keys of a page
	Window int64 // bytes of a window page: entries of its tokens, and the raw rows at its end
	State  int64 // bytes of the rings of raw rows, for each sequence
}

// SizesOf computes the sizes for a config and pages of the given number of tokens.
func SizesOf(c *config.V4, entry layout.V4, index layout.Index, page int) Sizes {
	var s Sizes
	for _, ratio := range c.Attention.Ratios {
		s.Window += int64(entry.PageBytes(page))
		if ratio == 0 {
			continue
		}
		s.Page += int64(entry.PageBytes(page / ratio))
		s.State += int64(dual.RingBytes(ratio, c.Attention.Dim))
		if ratio != dual.IndexRatio {
			continue
		}
		s.Page += int64(index.PageBytes(page / ratio))
		s.State += int64(dual.RingBytes(ratio, c.Indexer.Dim))
		s.Window += int64(dual.TailRows * (dual.RawBytes(ratio, c.Attention.Dim) + dual.RawBytes(ratio, c.Indexer.Dim)))
	}
	return s
}
