// Package metric holds the Prometheus metrics of a server.
//
// Latencies and HTTP statuses are recorded by the server. The engine's counters are read from one snapshot per scrape,
// so that their values are consistent. The output is Prometheus' text format. Names are those in docs/operating.md and,
// if enabled, also vLLM's names, which routers read.
package metric
