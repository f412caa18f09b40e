// Package event publishes which pages of the prefix cache can be reused, so that routers can send prompts to the server
// that has their prefix in its cache.
//
// Changes of the cache flow in through a listener, called by the goroutine that owns the cache; it copies a page's
// tokens, appends them to a queue and returns. One goroutine, started by Run, numbers batches of changes, keeps the
// latest batches, and sends batches to subscribers over TCP, in vLLM's format: three frames of ZeroMQ's protocol
// (topic, sequence number, MessagePack). See docs/cluster.md for the fields.
//
// Subscribers cannot affect the cache. The queue keeps only changes that matter: a page that was stored and evicted
// before a batch was formed does not appear, so it holds at most a few changes for each page. Each subscriber has its
// own bounded queue; a batch that does not fit is dropped and counted, and the subscriber sees the gap in the numbers
// and asks for a replay. If a replay is requested from before the kept batches, or a subscriber joins, the publisher
// sends the whole state: AllBlocksCleared, then every page. Numbers begin at the time of the start, in microseconds, so
// that a restarted server uses higher numbers than before, and readers see a gap instead of repeated numbers.
package event
