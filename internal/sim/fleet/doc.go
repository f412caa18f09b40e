// Package fleet simulates replicas behind a router, to plan with: how many are needed, how much routing by prefix
// helps, what happens when one ends.
//
// A trace of conversations and the costs of a pass flow in; throughput, times to the first token and the share of
// prompts found in caches flow out. Engines, schedulers and caches are the real ones, over the virtual clock and the
// model by formula of the fault simulator; the router's policies are here. A trace and a seed give the same result on
// every machine.
package fleet
