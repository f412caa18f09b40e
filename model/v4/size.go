package v4

import (
	"sparrow/layout"
	"sparrow/model/config"
)

// Sizes is what sequences take of memory, over all layers, in bytes.
type Sizes struct {
	Page   int64 // compressed entries and indexer keys of a page
	Window int64 // a window page: entries of its tokens, and the raw rows it ends with
	State  int64 // the raw rows of open groups, of one sequence
}

// SizesOf computes the sizes for a config, loaded or not, in pages of that many tokens.
func SizesOf(c *config.V4, entry layout.V4, index layout.Index, page int) Sizes {
	var s Sizes
	for _, ratio := range c.Attention.Ratios {
		s.Window += int64(entry.PageBytes(page))
		if ratio == 0 {
			continue
		}
		s.Page += int64(entry.PageBytes(page / ratio))
		s.State += int64(ringOf(ratio) * rawBytes(ratio, c.Attention.Dim))
		if ratio != indexRatio {
			continue
		}
		s.Page += int64(index.PageBytes(page / ratio))
		s.State += int64(ringOf(ratio) * rawBytes(ratio, c.Indexer.Dim))
		s.Window += int64(tailRows * (rawBytes(ratio, c.Attention.Dim) + rawBytes(ratio, c.Indexer.Dim)))
	}
	return s
}

// rawBytes is one raw row of a compressor to entries of dim values: float32 values and gates, for each half.
func rawBytes(ratio, dim int) int {
	if overlapped(ratio) {
		dim *= 2
	}
	return 2 * dim * 4
}
