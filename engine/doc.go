// Package engine generates tokens for many requests at once. Requests with token ids come in through Submit; each Job
// returns events with tokens, text and, at the end, usage. The package does not handle chat templates, HTTP or
// checkpoint files: package sparrow turns those into token ids, a Guide and a loaded model.
//
// Callers use an Engine. Its intake checks requests and makes jobs, its inbox queues the jobs for the loop, and its
// tally holds the counters. One goroutine runs the loop and owns the model, the cache and the scheduler; the drafter,
// the tiers of the cache and the experts are parts of the loop. A setup holds the constants that all these parts read.
// Terms:
//
//   - An iteration receives new and cancelled jobs, launches the next batch and processes the last one: it delivers
//     tokens and drafts.
//   - A batch is the list of items that package sched chose: one item for each sequence, with its new tokens. Its
//     stages are in batch.go.
//   - A forward pass computes the logits of a batch. It is one call of step.Runner.Start, and its Wait.
//   - A draft pass runs the drafting layer after a forward pass. It is one call of step.Runner.Draft.
//   - A row is the position of one token in a pass, with its logits if they were requested.
//
// Public names that contain "step" refer to iterations and batches: Stats.Steps counts iterations, Config.StepTokens
// limits the tokens of a batch.
package engine
