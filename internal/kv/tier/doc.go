// Package tier stores pages of the prefix cache outside the device: in host memory, in files, and in a store that
// several servers share.
//
// Pages are stored when the device evicts them (host memory) and when they become reusable (files and the store, which
// outlive the process); they are loaded when a prompt begins with them. All tiers hold the same data: one page with all
// its streams, in the format of docs/format/page.md, under the chained hash of package prefix. That hash covers tokens,
// layout, model, arithmetic and salt, and a sample of the weights. A page that leaves the process carries a checksum
// and an identity of the weights. On this machine's disk the identity is the digest of all weights or, until that is
// computed, the sample together with the sizes and times of the weight files. In a store, and for other engines, it is
// always the digest. Until the digest is computed nothing is written to a store, read from it, or exchanged with other
// engines. So a page that is found either has the right content or is damaged, which its checksum detects; on disk this
// assumes that an edit of the weights changes the size or the time of a file.
//
// Nothing here touches a device or blocks the engine's loop. The loop passes filled pages to Stack.Keep and takes pages
// from Fetch.Next as they arrive; goroutines that a Stack owns and Close ends read and write files and the network. A
// tier that is slow, full or broken loses pages, but no request fails because of it; the loop decides how long a
// request waits for a page.
package tier
