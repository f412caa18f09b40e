package sparrow

import "sparrow/engine"

// Descriptions of the engine and of a request; package engine fills them in.
type (
	// Info describes an open engine; it does not change.
	Info = engine.Info
	// Memory is how the engine divided memory when it opened, in bytes.
	Memory = engine.Memory
	// Stats is a snapshot of an engine. Counters only grow.
	Stats = engine.Stats
	// DraftCount is how many drafts at one position of their chains were compared with the target's choice, and how
	// many equalled it.
	DraftCount = engine.DraftCount
	// GraphCount is how many passes ran from captured graphs.
	GraphCount = engine.GraphCount
	// PlanCount is how many rows ran in one kind of segment.
	PlanCount = engine.PlanCount
	// PlanRecord is one forward pass of the recent past.
	PlanRecord = engine.PlanRecord
	// Usage counts what a request cost.
	Usage = engine.Usage
	// Score states which given tokens get log probabilities.
	Score = engine.Score
	// Record states what is recorded of a request's rows.
	Record = engine.Record
	// Trace describes how a request was processed.
	Trace = engine.Trace
	// TierStats has the counters of pages outside the device and of their reuse.
	TierStats = engine.TierStats
	// Restored describes the pages that tiers returned for a sequence.
	Restored = engine.Restored
	// PlanUse is a plan and how often it carried this request.
	PlanUse = engine.PlanUse
	// SelfTest is when an engine compares the forms of attention on its weights before it opens.
	SelfTest = engine.SelfTest
	// Finish is why a choice ended.
	Finish = engine.Finish
)

// The rows that a Record may name.
const (
	RecordOutput = engine.RecordOutput // those that produce the answer's tokens
	RecordAll    = engine.RecordAll    // those of the prompt too
	RecordRange  = engine.RecordRange  // those of positions Record.From to Record.To
)

// The ways a choice ends.
const (
	FinishStop      = engine.FinishStop      // end of sequence, or a stop string or token
	FinishLength    = engine.FinishLength    // MaxTokens or the context is full
	FinishToolCalls = engine.FinishToolCalls // the reply calls tools
	FinishCancelled = engine.FinishCancelled // the caller's context ended
	FinishError     = engine.FinishError     // the request failed; Event.Err states why
)
