// Package metric holds the Prometheus metrics of a server.
//
// Latencies and HTTP outcomes are recorded as they are observed. What the engine counts itself is read from its
// snapshot at every scrape, so that the values of one scrape belong together. The output is Prometheus' text format
// from a registry of its own, under the names documented in docs/operating.md and, on request, also under vLLM's
// names, which routers read.
package metric
