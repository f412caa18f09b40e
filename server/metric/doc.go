// Package metric is what a server tells Prometheus.
//
// Latencies and HTTP outcomes flow in as they are observed; everything the engine counts itself is read from its snapshot when somebody
// scrapes, so that one scrape is one moment. Out flows the text format, from a registry of its own, under the names documented in
// docs/operating.md and, when asked for, a second time under the names that routers know from vLLM.
package metric
