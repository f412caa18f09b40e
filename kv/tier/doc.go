// Package tier keeps pages of the prefix cache outside the device: in host memory, in files, and in a store that
// several servers share.
//
// Pages flow in when the device gives them up (host memory) and when they become reusable (files and the store, which
// outlive the process); they flow out when a prompt begins with them. All tiers hold the same thing: one page with all
// that belongs to it, in the format of docs/format/page.md, under the chained hash of package prefix. Since that hash
// covers tokens, layout, model, weights, arithmetic and salt, a page that is found is the right one or it is damaged,
// and what leaves the process carries a checksum.
//
// Nothing here touches a device or waits in the engine's loop. The loop hands over filled pages (Stack.Keep) and takes
// pages as they arrive (Fetch.Next); files and the network are read and written by goroutines that a Stack owns and
// Close ends. A tier that is slow, full or broken loses pages: it never fails a request, and how long a request waits
// for one is the loop's decision.
package tier
