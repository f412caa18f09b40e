// Package kv manages the pages of the KV cache: which page belongs to which sequence, and which pages can be reused.
//
// Its input is the tokens of prompts and of written rows. Its output is page tables, the length of the cached prefix of
// a prompt with the reason why it is not longer, and an error if memory is full. The package does not access cache
// bytes or a device: the model owns the memory. A page number means the same page in every layer and in every stream
// (KV rows, indexer keys, windows, compressed streams and their state), so a page is reused in all layers and streams
// or not at all.
//
// Rows of sliding-window layers may have separate memory (Window). A page then has a window page while it is inside a
// sequence's window, and afterwards until that memory is needed. A match requires the pages of the prefix and the
// window rows that the next token attends to; if window rows are missing, the match is shortened and the reason
// reported.
//
// The calls for a sequence: Open finds the cached prefix of the prompt, Reserve allocates pages for new rows, Commit
// accepts written rows, Truncate releases pages, Close ends the sequence. A request is preempted by Close and resumed
// by Open with all its tokens. Every page is in one of three states:
//
//	free     its rows are not used
//	in use   in the page table of one or more sequences; references count them
//	cached   in no page table, but its rows belong to a full page of tokens that a later prompt may begin with
//
// A page becomes reusable when its last row is committed, so that rejected draft rows are never reused. Full pages are
// never written again. If two sequences compute the same page at the same time, each keeps its own copy. Rows computed
// in different batches may differ in their bits, and the rows of a running sequence must not change. Lookups return one
// of the copies; when it is released, another copy in use replaces it. If there are no free pages, cached pages are
// evicted, the least recently used first. If there are no cached pages either, Reserve returns ErrFull with the number
// of missing pages and changes nothing; the scheduler then preempts a sequence.
//
// A Pool and its sequences have no locks; only one goroutine at a time may use them. After warm-up, calls for a
// decoding sequence allocate no memory.
package kv
