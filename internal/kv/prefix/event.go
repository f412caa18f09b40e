package prefix

// Listener is called when the set of reusable pages changes, in order, by the goroutine that uses the Index. It must
// not call the Index.
type Listener interface {
	// Stored is called when a page became reusable. It is not called again for content that is already stored.
	Stored(Stored)
	// Removed is called when a page is no longer reusable.
	Removed(Hash)
	// Cleared is called when all pages have ceased to be reusable.
	Cleared()
}

// Stored describes a page that became reusable.
type Stored struct {
	// Hash identifies the page.
	Hash Hash
	// Parent identifies the page before it; it is Root for the first page of a prompt.
	Parent Hash
	// Root identifies layout and salt: pages under one root are never found for prompts under another root.
	Root Hash
	// Salt is the salt of Root, if the caller of Add knows it; it is valid only during the call.
	Salt []byte
	// Tokens are the page's tokens, valid during the call.
	Tokens []int32
}
