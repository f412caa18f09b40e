// Package prefix finds stored pages by content.
//
// Its input is pages of tokens as they become full, each with the page before it; its output is the pages that already
// hold the beginning of a prompt, how far they reach, and why the search stopped there. The package also keeps unused
// pages in order of last use, and evicts them one by one, oldest first.
//
// A page is identified by a chained hash: SHA-256 over the hash of the page before it and its own tokens. The chain
// starts at a root that covers the layout of the cache and the tenant's salt, so equal hashes mean equal positions,
// equal tokens before, equal layout and equal tenant. SHA-256 is used because a tenant must not be able to craft a page
// that is found for another tenant's prompt, and because hashes leave the process in events, where a per-process hash
// would be useless. The hash takes about 0.3 us for a page of 64 tokens, and a lookup mostly avoids it by first
// comparing tokens with the newest stored page. Every hit also compares the tokens and the parent: a collision of page
// hashes loses a hit, but never gives a wrong page.
//
// Entries form a tree and these three rules hold between calls; Check tests them:
//
//   - An entry's parent is stored as long as the entry is.
//   - Two pages may hold the same content, computed by two sequences at the same time. One of them answers lookups;
//     the others are listed after it, and the next one replaces it when it is no longer used. A page in use replaces
//     an idle one at once. So an entry is idle only when no sequence holds any page of its content, and then its
//     children are idle too.
//   - A sequence that ends releases its last page first. So a child is always idle for longer than its parent, and
//     evicting the oldest idle entry never cuts a branch.
//
// The package holds page numbers only and never touches cache memory. One goroutine uses an Index at a time.
package prefix

// Page is the number of a page. It is equal in every layer and in every stream of the cache.
type Page int32

// None means that there is no page: it is the parent of the first page of a prompt.
const None Page = -1

// none ends the lists of entries.
const none int32 = -1
