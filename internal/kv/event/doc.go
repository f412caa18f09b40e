// Package event publishes which pages of the prefix cache can be reused, so that routers can send a prompt to the
// server that has its prefix cached.
//
// The goroutine that owns the cache reports changes to a listener, which appends them to a queue. A goroutine started
// by Run forms numbered batches of changes, keeps the latest ones, and sends them to subscribers over TCP in vLLM's
// format: three frames of ZeroMQ's protocol (topic, sequence number, MessagePack). docs/cluster.md describes the
// fields.
//
// Subscribers cannot slow down the cache. The queue is bounded: a page that was stored and evicted before a batch was
// formed is removed from it. Each subscriber has a bounded queue too; a batch that does not fit is dropped and counted.
// The subscriber detects the gap in the sequence numbers and requests a replay. If the requested batches are no longer
// kept, or if a subscriber joins, the publisher sends the whole state: AllBlocksCleared, then every page. The first
// sequence number is the start time in microseconds, so that a restarted server uses higher numbers and readers detect
// a gap.
package event
