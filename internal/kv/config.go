package kv

import (
	"errors"
	"fmt"
	"math"

	"sparrow/internal/kv/prefix"
)

// Page is the number of a page.
type Page = prefix.Page

// Match states how much of a prompt was found in the cache and why the rest was not found.
type Match = prefix.Match

// Config describes a pool.
type Config struct {
	// Pages is the number of pages of cache memory, numbered from 0.
	Pages int
	// FirstPage is the first page of the pool. Pages with lower numbers have another use: if FirstPage is 1, padding
	// rows are written to page 0.
	FirstPage int
	// PageTokens is the number of tokens in a page.
	PageTokens int
	// Window is the memory of rows to which only later tokens within a window attend; the zero value means that the
	// pool has no such memory.
	Window Window
	// Reuse keeps full pages for later prompts with the same beginning.
	Reuse bool
	// Main and Index name the byte layouts of main rows and indexer keys. They are part of a page's hash.
	Main, Index string
	// Identity identifies everything else that the bytes of a page depend on, if pages leave the process: model,
	// weights and arithmetic. It is part of a page's hash.
	Identity string
	// Listener, when set, is called when pages become or cease to be reusable. If it has a method Root(prefix.Hash),
	// this method is called first, with the root of prompts without a salt.
	Listener prefix.Listener
	// Copier, when set, is called for pages whose rows can be copied elsewhere.
	Copier Copier
}

// Copier copies the rows of pages to other memory. The goroutine that uses the pool calls it. It must not call the
// pool.
type Copier interface {
	// Stored is called when a page became reusable. Its rows do not change until Leaving is called for this page.
	Stored(Kept)
	// Leaving is called before the next enqueued pass overwrites the rows of a reusable page, or its window rows. Rows
	// that are not copied before that pass are lost. If the pool has window pages, Leaving is called once when a page
	// loses its window page, and not again when the page is evicted later.
	Leaving(Kept)
}

// Kept is a reusable page and the location of its rows. Its tokens are valid during the call.
type Kept struct {
	prefix.Stored
	Page   Page
	Window int32 // window page of Page, negative if the pool has no window pages
}

// Validate reports everything that is wrong with a configuration.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if c.PageTokens < 1 {
		bad("pages have %d tokens, want at least 1", c.PageTokens)
	}
	if c.FirstPage < 0 {
		bad("the first page is %d, want 0 or more", c.FirstPage)
	}
	if c.Pages <= max(c.FirstPage, 0) {
		bad("there are %d pages, of which the first %d are reserved; want at least one "+
			"more", c.Pages, max(c.FirstPage, 0))
	}
	// Kernels compute the index of a row, page*PageTokens+row, in 32 bits.
	if c.PageTokens > 0 && c.Pages > math.MaxInt32/c.PageTokens {
		bad("there are %d pages of %d tokens, want at most %d rows in all", c.Pages, c.PageTokens, math.MaxInt32)
	}
	switch w := c.Window; {
	case w.Pages < 0 || w.First < 0 || w.Pages > 0 && w.Tokens < 1:
		bad("there are %d window pages from page %d on, for windows of %d tokens; want 0 or more pages and at least "+
			"one token",
			w.Pages, w.First, w.Tokens)
	case w.Pages > 0 && c.PageTokens > 0 && w.Pages < w.PerSequence(c.PageTokens):
		bad("there are %d window pages, but a single sequence needs %d", w.Pages, w.PerSequence(c.PageTokens))
	case c.PageTokens > 0 && w.First+w.Pages > math.MaxInt32/c.PageTokens:
		bad("there are %d window pages of %d tokens, want at most %d rows in "+
			"all", w.First+w.Pages, c.PageTokens, math.MaxInt32)
	}
	if len(errs) == 0 {
		return nil
	}
	return fmt.Errorf("%w: %w", ErrConfig, errors.Join(errs...))
}

// Tag is the label of exported pages; it prevents rows of one layout from being read as rows of another layout.
type Tag struct {
	Main, Index string
	PageTokens  int
}

// String returns the tag in one word.
func (t Tag) String() string { return fmt.Sprintf("%s+%s/%d", t.Main, t.Index, t.PageTokens) }
