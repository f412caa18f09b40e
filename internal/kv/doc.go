// Package kv manages the pages of the KV cache: which page belongs to which sequence, and which pages can be reused.
//
// Its input is the tokens of prompts and the tokens whose rows have been written; its output is page tables, how much
// of a prompt is in the cache already and why not more, and an error when memory is full. The package never touches
// cache bytes or a device: the model owns the memory. A page number means the same page in every layer and in every
// stream (main rows, indexer keys, windows, compressed streams and their state), so a page is reused with all that
// belongs to it or not at all.
//
// Rows that later tokens do not see may have memory of their own (Window): a page then has a window page only while a
// sequence's window reaches it, and afterwards until its memory is needed. A stored prompt continues where both its
// pages and the window rows its next token sees are there; a lookup that finds only the pages is shortened and says
// so.
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
// pages are never written again. Two sequences that compute the same page at the same time keep their own, because rows
// computed in different batches may differ in their bits and the rows of a running sequence must not change; one of the
// pages answers lookups, and when it is released another one that is still in use replaces it. When pages run out,
// cached ones are evicted, the least recently used first; when none is left, Reserve fails with ErrFull, changes
// nothing, and states how many pages are missing. The scheduler then chooses which sequence to preempt.
//
// One goroutine uses a Pool and its sequences at a time; there are no locks. After warm-up, calls for a decoding
// sequence allocate nothing.
package kv
