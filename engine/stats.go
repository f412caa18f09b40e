package engine

import (
	"time"

	"sparrow/internal/kv"
	"sparrow/internal/spec"
	"sparrow/plan"
)

// Stats is a snapshot of an engine. Counters only grow.
type Stats struct {
	Running, Waiting int
	Asleep           bool // the engine has given its memory back and accepts nothing
	KV               kv.Stats
	// Device is why the device cannot be used now: it failed, or a pass on it does not end. Empty while it works.
	Device string

	Requests                                 int64 // accepted
	Finished                                 int64
	Aborted                                  int64 // cancelled by their callers
	Failed                                   int64
	Refused                                  int64 // queue full
	Steps                                    int64 // forward passes that succeeded
	Overlapped                               int64 // of them enqueued while the one before ran
	Between                                  int64 // of them between the operations of another
	Unused                                   int64 // tokens that were computed for choices that had ended before
	Isolated                                 int64 // batches that failed and whose sequences were run one by one
	Preempted                                int64
	PromptTokens, CachedTokens, OutputTokens int64
	ScoredTokens                             int64 // of prompts, that got log probabilities
	Drafted, Accepted                        int64 // tokens
	Verified                                 int64 // items whose drafts a forward pass verified
	VerifiedTokens                           int64 // tokens that came out of those
	// Drafts counts drafts by their place in the chain, the first at 0.
	Drafts [spec.MaxDrafts]DraftCount
	// DraftsAhead counts passes of the drafting layer that were enqueued before the host had seen what the target
	// chose.
	DraftsAhead int64
	// DraftsEnded counts sequences that stopped drafting because it did not pay, DraftsFailed those whose draft pass
	// failed.
	DraftsEnded, DraftsFailed int64

	// Plans counts segments that ran, by their kind.
	Plans []PlanCount
	// Conversions and Slices count segments whose rows were converted, and extra launches because a limit was met.
	Conversions, Slices int64
	// Busy is the time that passes took, from their preparation until their results were there. Faults counts passes
	// that the device failed.
	Busy   time.Duration
	Faults int64
	// LongestGap is the time of the longest batch with decoding sequences in the last minute or two: the longest time
	// between two of their tokens.
	LongestGap time.Duration
	// Graphs counts captured graphs; all zero on devices without them.
	Graphs GraphCount
	// Tiers has the counters of pages outside the device.
	Tiers TierStats
	// Experts has the counts of chosen experts; zero where choices are not counted.
	Experts ExpertCount
}

// ExpertCount is how many choices of experts were counted, and the shares of them that the most chosen tenth, quarter
// and half of each layer's experts got, in the mean over layers; and how many experts have moved.
type ExpertCount struct {
	Choices              float64
	Tenth, Quarter, Half float64
	Moved                int64 // experts that came to the device in the place of others
}

// GraphCount is how many passes were captured, ran from a captured graph, could not be captured, and lost their graph
// to another; how many graphs there are now, and the device memory that they take.
type GraphCount struct {
	Captured, Replayed, Failed, Evicted int64
	Held                                int
	Bytes                               int64
}

// DraftCount is how many drafts at one position of their chains were compared with the target's choice, and how many
// equalled it.
type DraftCount struct{ Judged, Right int64 }

// PlanCount is the number of rows that ran in one kind of segment.
type PlanCount struct {
	Row     plan.RowKind
	Form    plan.Form
	Kernel  plan.Kernel
	Convert plan.Convert
	Steps   int64 // passes
	Rows    int64
}

// PlanRecord is one forward pass of the recent past.
type PlanRecord struct {
	Step     int64 // its number, from 1
	At       time.Time
	Plan     *plan.Plan
	Took     time.Duration // planning, model, sampling and drafting
	Requests int
}
