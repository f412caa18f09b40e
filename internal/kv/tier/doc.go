// Package tier stores pages of the prefix cache outside the device: in host memory, in files, and in a store that
// several servers share.
//
// Host memory stores pages when the device evicts them. Files and the store, which outlive the process, store pages
// when they become reusable. Pages are loaded when a prompt begins with them. All tiers hold the same data: a page with
// all its streams, in the format of docs/format/page.md, under the chained hash of package prefix. The hash covers
// tokens, layout, model, arithmetic, salt and a sample of the weights.\n\nA page outside the process also contains a
// checksum and an identity of the weights. In a store, and for other engines, the identity is the digest of all
// weights; until it is computed, no pages are exchanged with them. On this machine's disk the identity may also be the
// sample of the weights and the sizes and times of the weight files. This assumes that an edit changes the size or time
// of a file.
//
// The package does not access a device, and does not block the engine's loop. The loop passes pages to Stack.Keep and
// takes loaded pages from Fetch.Next. Goroutines of the Stack, which Close stops, use files and the network. If a tier
// is slow, full or fails, pages are lost but requests do not fail; the loop decides how long a request waits for a
// page.
package tier
