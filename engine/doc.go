// Package engine generates tokens for many requests at once. Requests with token ids flow in through Submit; events
// with tokens, text and, at the end, usage flow out of each Job. It knows no chat, no HTTP and no checkpoint files:
// package sparrow turns those into token ids, a Guide and a loaded model.
//
// One goroutine runs the loop and owns the model, the cache and the scheduler. The words for its parts:
//
//   - An iteration is one turn of the loop: receive arrivals and cancellations, form a batch, run it, hand
//     out tokens, draft.
//   - A batch is the list of items that package sched chose: one item for each sequence, with its new tokens.
//   - A forward pass computes the logits of a batch. It is one call of step.Runner.Run.
//   - A draft pass runs the drafting layer after a forward pass. It is one call of step.Runner.Draft.
//   - A row is one token's place in a pass, and its logits where they were asked for.
//
// The public counters and options that are named after steps (Stats.Steps, Config.StepTokens) count iterations and
// bound batches.
package engine
