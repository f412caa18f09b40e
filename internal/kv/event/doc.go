// Package event publishes which pages of the prefix cache can be reused, so that routers send prompts to the server
// that holds their beginning.
//
// Changes of the cache flow in through a listener, called by the goroutine that owns the cache; it copies a page's
// tokens, appends them to a queue and returns. One goroutine, started by Run, numbers batches of changes, keeps the
// latest of them, and hands them to subscribers over TCP, in vLLM's format: three frames of ZeroMQ's protocol (topic,
// sequence number, MessagePack). See docs/cluster.md for the fields.
//
// Subscribers cannot affect the cache. The queue keeps only changes that matter: a page that was stored and evicted
// before a batch was formed does not appear, so it never holds more than a few changes for each page. Each subscriber
// has a bounded queue of its own; what does not fit is dropped and counted, and the subscriber sees the gap in the
// numbers and asks for a replay. A replay from before the latest batches, and a subscriber that joins, get the whole
// state instead: AllBlocksCleared, then every page. Numbers begin at the time of the start, in microseconds, so that
// those of a server that starts again are higher than before, and readers see a gap rather than repeated numbers.
package event
