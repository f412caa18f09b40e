package sparrow

import "sparrow/engine"

// Descriptions of the engine and of requests, defined in package engine.
type (
	// Info describes an open engine; it does not change.
	Info = engine.Info
	// Memory holds the bytes of weights, cache and scratch memory when the engine opened.
	Memory = engine.Memory
	// Stats is a snapshot of an engine's counters and gauges. Counters never decrease.
	Stats = engine.Stats
	// DraftCount counts, for one position of the draft chain, the drafts that were verified and those that were
	// accepted.
	DraftCount = engine.DraftCount
	// GraphCount counts the passes that ran as captured CUDA graphs.
	GraphCount = engine.GraphCount
	// PlanCount is the number of rows that one kind of plan segment computed.
	PlanCount = engine.PlanCount
	// PlanRecord describes one recent forward pass.
	PlanRecord = engine.PlanRecord
	// Usage counts the tokens of a request.
	Usage = engine.Usage
	// Score selects the prompt tokens whose log probabilities are returned.
	Score = engine.Score
	// Record selects what is recorded for a request: selected keys, chosen experts, and for which rows.
	Record = engine.Record
	// Trace describes how a request was processed: plans, prefix matches and times.
	Trace = engine.Trace
	// TierStats holds the counters of pages in host memory, files and stores, and of their reuse.
	TierStats = engine.TierStats
	// Restored counts the pages that were read from tiers for a sequence.
	Restored = engine.Restored
	// PlanUse is a plan and the number of forward passes of this request that used it.
	PlanUse = engine.PlanUse
	// SelfTest selects when Open compares the attention kernels with each other on the model's weights.
	SelfTest = engine.SelfTest
	// Finish is the reason why a choice ended.
	Finish = engine.Finish
)

// Values of Record.Rows.
const (
	RecordOutput = engine.RecordOutput // rows that produce the answer's tokens
	RecordAll    = engine.RecordAll    // rows of the prompt and of the answer
	RecordRange  = engine.RecordRange  // rows at positions Record.From to Record.To
)

// Values of [Finish].
const (
	FinishStop      = engine.FinishStop      // an end-of-sequence token, a stop string or a stop token was found
	FinishLength    = engine.FinishLength    // MaxTokens tokens were generated, or the context is full
	FinishToolCalls = engine.FinishToolCalls // the reply calls tools
	FinishCancelled = engine.FinishCancelled // the caller's context ended
	FinishError     = engine.FinishError     // the request failed; Event.Err states why
)
