// Package sim tests the real engine, with its scheduler, cache, prefix index, drafts and queues, under injected faults.
// It uses a virtual clock (internal/sim/clock) and a model without weights (internal/sim/formula).
//
// A seed determines sizes, requests, client behaviour and faults of the device. A run returns a report, or the first
// violated invariant. After every iteration it calls the engine's own Check. Every stream must end exactly once, with
// the tokens, log probabilities and finish reason that the request has when it runs alone. Requests may fail only
// because of a fault. At the end no page, state, process or request may remain. A seed gives the same run on every
// machine.
package sim
