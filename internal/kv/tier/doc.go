// Package tier keeps pages of the prefix cache outside the device: in host memory, in files, and in a store that
// several servers share.
//
// Pages flow in when the device evicts them (host memory) and when they become reusable (files and the store, which
// outlive the process); they flow out when a prompt begins with them. All tiers hold the same thing: one page with all
// that belongs to it, in the format of docs/format/page.md, under the chained hash of package prefix. That hash covers
// tokens, layout, model, arithmetic and salt, and a sample of the weights. A page that leaves the process carries a
// checksum and a name of the weights: on this machine's disk the digest of all of them or, until that is known, the
// sample with the sizes and times of their files; in a store, and to other engines, the digest alone. Until it is known
// nothing is written to a store, read from it, or exchanged with other engines. So a page that is found is the right
// one, or it is damaged; on disk that assumes that an edit changes the size or the time of a file.
//
// Nothing here touches a device or waits in the engine's loop. The loop hands over filled pages (Stack.Keep) and takes
// pages as they arrive (Fetch.Next); files and the network are read and written by goroutines that a Stack owns and
// Close ends. A tier that is slow, full or broken loses pages: it never fails a request, and how long a request waits
// for one is the loop's decision.
package tier
