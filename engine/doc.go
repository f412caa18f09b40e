// Package engine generates tokens for many requests at once. Requests with token ids flow in through Submit; events
// with tokens, text and, at the end, usage flow out of each Job. It knows no chat, no HTTP and no checkpoint files:
// package sparrow turns those into token ids, a Guide and a loaded model.
//
// An Engine is what callers use. Its intake turns requests into jobs, its inbox holds them until the loop takes them,
// and its tally has the counters. One goroutine runs the loop and owns the model, the cache and the scheduler; the
// drafter, the tiers of the cache and the experts are parts of the loop. A setup has the constants that all of them
// read. The words for what the loop does:
//
//   - An iteration receives arrivals and cancellations, launches the next batch and processes the last one: hands out
//     tokens, drafts.
//   - A batch is the list of items that package sched chose: one item for each sequence, with its new tokens. Its
//     stages are in batch.go.
//   - A forward pass computes the logits of a batch. It is one call of step.Runner.Start, and its Wait.
//   - A draft pass runs the drafting layer after a forward pass. It is one call of step.Runner.Draft.
//   - A row is one token's place in a pass, and its logits where they were asked for.
//
// The public counters and options that are named after steps (Stats.Steps, Config.StepTokens) count iterations and
// bound batches.
package engine
