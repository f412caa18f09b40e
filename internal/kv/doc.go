// Package kv manages the pages of the KV cache: which page belongs to which sequence, and which pages can be reused.
//
// Its input is the tokens of prompts and the tokens whose rows have been written; its output is page tables, how much
// of a prompt is already in the cache and why the lookup stopped there, and an error when memory is full. The package
// never touches cache bytes or a device: the model owns the memory. A page number means the same page in every layer
// and in every stream (main rows, indexer keys, windows, compressed streams and their state), so a page is reused in
// all layers and streams or not at all.
//
// Rows that later tokens no longer attend to may have separate memory (Window): a page then has a window page only
// while a sequence's window reaches it, and afterwards until its memory is needed. A lookup ends at a position where
// both the pages of the prompt and the window rows that the next token attends to are stored; if window rows are
// missing, the match is shortened and the reason reported.
//
// A sequence's life: Open finds the stored beginning of the prompt, Reserve makes room for rows about to be written,
// Commit states which of them are accepted, Truncate releases room, Close ends it. Preempting a request is Close;
// resuming it is Open with all its tokens. Every page is in one of three states:
//
//	free     no rows worth keeping
//	in use   in the page table of one or more sequences; references count them
//	cached   in no page table, but holds a full page of committed tokens that a later prompt may begin with
//
// A page becomes reusable when its last row is committed, never before: rejected draft rows are never visible. Full
// pages are never written again. Two sequences that compute the same page at the same time each keep their own copy,
// because rows computed in different batches may differ in their bits and the rows of a running sequence must not
// change; one of the pages answers lookups, and when it is released another one that is still in use replaces it. When
// pages run out, cached pages are evicted, the least recently used page first; when no cached page is left, Reserve
// fails with ErrFull, changes nothing, and states how many pages are missing. The scheduler then chooses which sequence
// to preempt.
//
// One goroutine uses a Pool and its sequences at a time; there are no locks. After warm-up, calls for a decoding
// sequence allocate nothing.
package kv
