package model

import (
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Kinds returns the layouts of rows and of indexer keys of a resolved configuration. The layout of indexer keys is
// unset if the model has no indexer.
func Kinds(cfg *plan.Config) (main, index layout.Kind, err error) {
	if main, err = layout.ParseKind(cfg.Layout.String()); err == nil && cfg.IndexLayout != plan.LayoutNone {
		index, err = layout.ParseKind(cfg.IndexLayout.String())
	}
	return main, index, err
}

// NewPool allocates a pool of pages of a layout, with the given number of tokens in each page.
func NewPool(mem kernel.Memory, k layout.Kind, pageBytes, pages, tokens int) (kernel.Pool, error) {
	t, err := kernel.New(mem, kernel.U8, pages, pageBytes)
	return kernel.Pool{Mem: t, Layout: k, PageTokens: tokens}, err
}

// PagePart returns the bytes of one page of a pool, u8 [1, n].
func PagePart(p kernel.Pool, page int) kernel.Tensor { return Part(p.Mem, page, 1) }

// Part returns the bytes of n rows of a contiguous tensor, from row n*at on, u8 [1, bytes].
func Part(t kernel.Tensor, at, n int) kernel.Tensor {
	s := t.Slice(at*n, (at+1)*n)
	bytes := n * t.Cols * t.DType.Size()
	s.DType, s.Rows, s.Cols, s.Stride = kernel.U8, 1, bytes, bytes
	return s
}
