package sparrow

import "sparrow/engine"

// Descriptions of the engine and of a request; package engine sets their fields.
type (
	// Info describes an open engine; it does not change.
	Info = engine.Info
	// Memory holds the sizes of weights, cache and passes at start, in bytes.
	Memory = engine.Memory
	// Stats is a snapshot of an engine. Counters only grow.
	Stats = engine.Stats
	// DraftCount counts the drafts at one position of their chains that were compared with the target's token, and how
	// many drafts were equal to that token.
	DraftCount = engine.DraftCount
	// GraphCount counts passes that ran from captured graphs.
	GraphCount = engine.GraphCount
	// PlanCount is the number of rows that ran in one kind of segment.
	PlanCount = engine.PlanCount
	// PlanRecord is one forward pass of the recent past.
	PlanRecord = engine.PlanRecord
	// Usage counts the tokens of a request.
	Usage = engine.Usage
	// Score selects the given tokens that get log probabilities.
	Score = engine.Score
	// Record selects the data that is recorded for a request's rows.
	Record = engine.Record
	// Trace describes how a request was processed: plans, prefix matches and times.
	Trace = engine.Trace
	// TierStats holds the counters of pages outside the device and of their reuse.
	TierStats = engine.TierStats
	// Restored describes the pages that tiers returned for a sequence.
	Restored = engine.Restored
	// PlanUse is a plan and the number of passes that ran this request with it.
	PlanUse = engine.PlanUse
	// SelfTest selects when an engine compares the forms of attention on its weights before it opens.
	SelfTest = engine.SelfTest
	// Finish is the reason why a choice ended.
	Finish = engine.Finish
)

// The rows that a Record may select.
const (
	RecordOutput = engine.RecordOutput // rows that produce the answer's tokens
	RecordAll    = engine.RecordAll    // rows of the prompt and of the answer
	RecordRange  = engine.RecordRange  // rows at positions Record.From to Record.To
)

// The ways a choice ends.
const (
	FinishStop      = engine.FinishStop      // an end-of-sequence token, a stop string or a stop token was found
	FinishLength    = engine.FinishLength    // MaxTokens tokens were generated, or the context is full
	FinishToolCalls = engine.FinishToolCalls // the reply calls tools
	FinishCancelled = engine.FinishCancelled // the caller's context ended
	FinishError     = engine.FinishError     // the request failed; Event.Err states why
)
