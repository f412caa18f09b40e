// Package fleet simulates replicas behind a router for capacity planning: how many replicas are needed, how much
// routing by prefix helps, and what happens when a replica ends.
//
// Its inputs are a trace of conversations and the costs of a pass; it returns throughput, times to the first token and
// the share of cached prompt tokens. Engines, schedulers and caches are the real implementations, on the virtual clock
// and the formula model of the fault simulator; the router's policies are here. A trace and a seed give the same result
// on every machine.
package fleet
