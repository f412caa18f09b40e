package model

import (
	"sparrow/kernel"
	"sparrow/layout"
	"sparrow/plan"
)

// Kinds are the layouts of rows and of indexer keys that a resolved configuration names.
func Kinds(cfg *plan.Config) (main, index layout.Kind, err error) {
	if main, err = layout.ParseKind(cfg.Layout.String()); err == nil {
		index, err = layout.ParseKind(cfg.IndexLayout.String())
	}
	return main, index, err
}

// NewPool allocates pages of a layout, each of that many tokens.
func NewPool(mem kernel.Memory, k layout.Kind, pageBytes, pages, tokens int) (kernel.Pool, error) {
	t, err := kernel.New(mem, kernel.U8, pages, pageBytes)
	return kernel.Pool{Mem: t, Layout: k, PageTokens: tokens}, err
}
