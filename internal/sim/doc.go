// Package sim runs the real engine, with its scheduler, cache, prefix index, drafts and queues, over a virtual clock
// and a model that computes by a formula (internal/sim/clock, internal/sim/formula), and breaks it on purpose.
//
// A seed flows in; it decides sizes, requests, habits of clients and faults of the device. Out flows what happened, or
// the first broken rule: after every iteration the engine's own Check; for every stream that it ends exactly once, that
// its tokens, log probabilities and reason are those of a run alone, and that nothing fails without a fault; at the end
// that no page, state, process or request is left. A seed gives the same run on every machine.
package sim
