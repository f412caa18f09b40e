package prefix

// Listener receives the changes of the set of reusable pages, in order. The goroutine that uses the Index calls it; it
// must not call the Index.
type Listener interface {
	// Stored is called when a page became reusable. It is not called for a second page with the same content.
	Stored(Stored)
	// Removed is called when a page is no longer reusable.
	Removed(Hash)
	// Cleared is called when no page is reusable any more.
	Cleared()
}

// Stored describes a page that became reusable.
type Stored struct {
	// Hash is the hash of the page.
	Hash Hash
	// Parent is the hash of the page before it, or Root for the first page of a prompt.
	Parent Hash
	// Root is the hash of layout and salt. A page is found only for prompts with the same root.
	Root Hash
	// Salt is the salt of Root, or nil if it is unknown; it is valid only during the call.
	Salt []byte
	// Tokens holds the page's tokens; it is valid only during the call.
	Tokens []int32
}
