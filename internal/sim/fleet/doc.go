// Package fleet simulates replicas behind a router, for capacity planning: the number of replicas that a load needs,
// the benefit of prefix-aware routing, and the effects of a replica's failure.
//
// Its inputs are a trace of conversations and the costs of a pass. It returns throughput, times to the first token and
// the share of cached prompt tokens. Engines, schedulers and caches are the real implementations, with a virtual clock
// and a model without weights. The package implements the router's policies. A trace and a seed give the same result on
// every machine.
package fleet
