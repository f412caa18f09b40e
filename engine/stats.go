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
	Asleep           bool // the engine has given its memory back and accepts nothing
	KV               kv.Stats
	// Device is the reason why the device cannot be used now: it failed, or a pass on it hangs. It is empty while the
	// device works.
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
	// Drafts counts drafts by their position in the chain, from 0.
	Drafts [spec.MaxDrafts]DraftCount
	// DraftsAhead counts passes of the drafting layer that were enqueued before the host had the target's tokens.
	DraftsAhead int64
	// DraftsEnded counts sequences that stopped drafting because it cost more time than it saved. DraftsFailed counts
	// sequences whose draft pass failed.
	DraftsEnded, DraftsFailed int64

	// Plans counts segments that ran, by their kind.
	Plans []PlanCount
	// Conversions counts segments whose rows were converted. Slices counts extra launches that a limit made necessary.
	Conversions, Slices int64
	// Busy is the total time of passes, from their preparation to their results. Faults counts passes that failed on
	// the device.
	Busy   time.Duration
	Faults int64
	// LongestGap is the time of the longest batch with decoding sequences in the last minute or two: the longest time
	// between two of their tokens.
	LongestGap time.Duration
	// Graphs counts captured graphs; all zero on devices without them.
	Graphs GraphCount
	// Tables is the size of n-gram tables in host memory and what was read of them; zero of models without any.
	Tables model.TableUse
	// Tiers holds the counters of pages outside the device.
	Tiers TierStats
	// Experts holds the counts of chosen experts; zero if choices are not counted.
	Experts ExpertCount
}

// ExpertCount holds the number of counted expert choices, and the shares of the most chosen tenth, quarter and half of
// each layer's experts, averaged over layers. It also holds the number of experts that were moved.
type ExpertCount struct {
	Choices              float64
	Tenth, Quarter, Half float64
	Moved                int64 // experts that came to the device in the place of others
}

// GraphCount counts the passes that were captured, that ran from a captured graph, that could not be captured, and
// whose graph was evicted for another. It also holds the number of graphs now and their device memory.
type GraphCount struct {
	Captured, Replayed, Failed, Evicted int64
	Held                                int
	Bytes                               int64
}

// DraftCount counts the drafts at one position of their chains that were compared with the target's token, and how many
// were equal to it.
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
