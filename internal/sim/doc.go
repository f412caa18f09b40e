// Package sim runs the real engine, with its scheduler, cache, prefix index, drafts and queues, on a virtual clock and
// a model that computes by a formula (internal/sim/clock, internal/sim/formula), and injects faults.
//
// A seed determines sizes, requests, client behaviour and faults of the device. A run returns a report, or the first
// violated invariant. After every iteration it calls the engine's own Check. For every stream it checks that it ends
// exactly once, that its tokens, log probabilities and finish reason equal those of a lone run, and that no request
// fails without a fault. At the end no page, state, process or request may be left. A seed gives the same run on every
// machine.
package sim
