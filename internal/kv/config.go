package kv

import (
	"errors"
	"fmt"
	"math"

	"sparrow/internal/kv/prefix"
)

// Page is the number of a page.
type Page = prefix.Page

// Match states how many tokens of a prompt were found in the cache, and why no more were found.
type Match = prefix.Match

// Config holds the parameters of a pool.
type Config struct {
	// Pages is the number of pages of cache memory, numbered from 0.
	Pages int
	// FirstPage is the first page of the pool. Pages with lower numbers are reserved: with FirstPage 1, padding rows
	// are written to page 0.
	FirstPage int
	// PageTokens is the number of tokens in a page.
	PageTokens int
	// Window configures memory for the rows of sliding-window layers, to which only the next tokens attend. The zero
	// value means that there are no such layers.
	Window Window
	// Reuse enables the prefix cache: full pages are kept for later prompts with the same beginning.
	Reuse bool
	// Main and Index name the byte layouts of KV rows and indexer keys. They are part of a page's hash.
	Main, Index string
	// Identity identifies the model, weights and arithmetic, on which the bytes of a page also depend. It is set if
	// pages leave the process, and is part of a page's hash.
	Identity string
	// Listener, if not nil, is called when pages become reusable and when they no longer are. If it has a method
	// Root(prefix.Hash), this method is called first, with the root hash of prompts without a salt.
	Listener prefix.Listener
	// Copier, if not nil, is called for pages whose rows can be copied to other memory.
	Copier Copier
}

// Copier copies the rows of pages to other memory. The goroutine that uses the pool calls its methods, which must not
// call the pool.
type Copier interface {
	// Stored is called when a page becomes reusable. Its rows do not change until Leaving is called for the page.
	Stored(Kept)
	// Leaving is called when the next pass may overwrite the rows of a reusable page, or its window rows. They must be
	// copied before that pass. If the pool has window pages, Leaving is called once, when the page loses its window
	// page, and not again when the page is evicted.
	Leaving(Kept)
}

// Kept is a reusable page and the location of its rows. Its token slice is valid only during the call.
type Kept struct {
	prefix.Stored
	Page   Page
	Window int32 // window page of Page; negative if there is none
}

// Validate returns an error that lists all invalid fields, or nil.
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

// Tag identifies the layout of exported pages, so that rows are not read in another layout.
type Tag struct {
	Main, Index string
	PageTokens  int
}

// String returns the tag in one word.
func (t Tag) String() string { return fmt.Sprintf("%s+%s/%d", t.Main, t.Index, t.PageTokens) }
