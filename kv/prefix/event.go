package prefix

// Listener is told how the set of reusable pages changes. Calls come from the goroutine that uses the Index, in order, and must
// not call back into it.
type Listener interface {
	// Stored: a page became reusable. Content that is already stored is not told again.
	Stored(Stored)
	// Removed: a page is no longer reusable.
	Removed(Hash)
	// Cleared: no page is reusable any more.
	Cleared()
}

// Stored describes a page that became reusable.
type Stored struct {
	// Hash identifies the page.
	Hash Hash
	// Parent identifies the page before it; it is Root for the first page of a prompt.
	Parent Hash
	// Root tells layout and salt apart: pages under different roots never answer for one another.
	Root Hash
	// Tokens are the page's tokens, valid during the call.
	Tokens []int32
}
