package engine

import (
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/model"
	"sparrow/internal/spec"
	"sparrow/plan"
)

// Stats is a snapshot of an engine. Counters only grow.
type Stats struct {
	Running, Waiting int
	Asleep           bool // the engine has released its memory and accepts no requests
	KV               kv.Stats
	// Device is the reason why the device cannot be used now: it failed, or a pass on it hangs. It is empty while the
	// device works.
	Device string

	Requests                                 int64 // requests accepted
	Finished                                 int64
	Aborted                                  int64 // requests cancelled by their callers
	Failed                                   int64
	Refused                                  int64 // requests refused because the queue was full
	Steps                                    int64 // successful forward passes
	Overlapped                               int64 // steps that were enqueued while the previous pass ran
	Between                                  int64 // steps that ran between the operations of another pass
	Unused                                   int64 // rows that were computed for choices that had already ended
	Isolated                                 int64 // failed batches whose sequences were run one by one
	Preempted                                int64
	PromptTokens, CachedTokens, OutputTokens int64
	ScoredTokens                             int64 // prompt tokens that got log probabilities
	Drafted, Accepted                        int64 // tokens drafted by the drafting layer, and drafts accepted
	Verified                                 int64 // items whose drafts a forward pass verified
	VerifiedTokens                           int64 // output tokens of verified items
	// Drafts counts drafts by their position in the chain, from 0.
	Drafts [spec.MaxDrafts]DraftCount
	// DraftsAhead counts passes of the drafting layer that were enqueued before the host had the target's tokens.
	DraftsAhead int64
	// DraftsEnded counts sequences that stopped drafting because it cost more time than it saved. DraftsFailed counts
	// sequences whose draft pass failed.
	DraftsEnded, DraftsFailed int64

	// Plans counts segments that ran, by their kind.
	Plans []PlanCount
	// Conversions counts segments whose rows were converted. Slices counts additional launches of segments that were
	// divided because of a limit of a kernel.
	Conversions, Slices int64
	// Busy is the total time of passes, from their preparation to their results. Faults counts passes that failed on
	// the device.
	Busy   time.Duration
	Faults int64
	// LongestGap is the time of the longest batch with decoding sequences in the last minute or two: the longest time
	// between two tokens of a sequence.
	LongestGap time.Duration
	// Graphs counts captured graphs; all zero on devices without them.
	Graphs GraphCount
	// Tables holds the size of n-gram tables in host memory and the counters of their reads; zero for models without
	// such tables.
	Tables model.TableUse
	// Tiers holds the counters of pages outside the device.
	Tiers TierStats
	// Experts holds the counts of chosen experts; zero if choices are not counted.
	Experts ExpertCount
}

// ExpertCount holds the number of counted expert choices, and the shares of the most chosen tenth, quarter and half of
// each layer's experts, averaged over layers.
type ExpertCount struct {
	Choices              float64
	Tenth, Quarter, Half float64
	Moved                int64 // number of experts that moved to the device, each in exchange for another expert
}

// GraphCount counts passes that were captured, passes that ran from a captured graph, captures that failed, and evicted
// graphs.
type GraphCount struct {
	Captured, Replayed, Failed, Evicted int64
	Held                                int
	Bytes                               int64
}

// DraftCount counts the drafts at one position of their chains that were compared with the target's token, and how many
// drafts were equal to that token.
type DraftCount struct{ Judged, Right int64 }

// PlanCount is the number of rows that ran in one kind of segment.
type PlanCount struct {
	Row     plan.RowKind
	Form    plan.Form
	Kernel  plan.Kernel
	Convert plan.Convert
	Steps   int64 // number of passes
	Rows    int64
}

// PlanRecord is one forward pass of the recent past.
type PlanRecord struct {
	Step     int64 // number of the pass, from 1
	At       time.Time
	Plan     *plan.Plan
	Took     time.Duration // time of planning, model, sampling and drafting
	Requests int
}
