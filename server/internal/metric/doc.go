// Package metric holds the Prometheus metrics of a server.
//
// Latencies and HTTP outcomes are recorded as they are observed. The engine's own counters are read from a snapshot at
// every scrape, so that the values of one scrape are consistent. The output is Prometheus' text format from a separate
// registry, under the names documented in docs/operating.md and, on request, also under vLLM's names, which routers
// read.
package metric
