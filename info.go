package sparrow

import (
	"time"

	"sparrow/kv"
	"sparrow/plan"
	"sparrow/spec"
)

// Info describes an open engine; it does not change.
type Info struct {
	Name          string
	Family        string
	Created       time.Time
	Vocabulary    int
	ContextTokens int // longest sequence
	CacheTokens   int
	PageTokens    int
	Pages         int
	WindowPages   int // of rows that fall out of sight; 0 where rows live as long as their page
	StepTokens    int
	MaxRunning    int // at most StepTokens
	MaxQueue      int
	ChatFormat    string // empty without one
	Kernels       string
	Config        plan.Config
	Notices       []plan.Notice
	Memory        Memory
	// Draft is what was asked about drafting, Drafts the longest chain, and NoDrafts why there is none.
	Draft    spec.Setting
	Drafts   int
	NoDrafts string
}

// Memory is how the engine divided memory when it opened, in bytes.
type Memory struct {
	Weights   int64
	Packed    bool // the weights are a copy of their own, see Config.Pack
	Cache     int64
	States    int64 // the most that running sequences keep beside their pages
	Transient int64 // the most a step needs beyond both: StepTokens new tokens at the end of a full context
}

// Stats is a snapshot of an engine. Counters only grow.
type Stats struct {
	Running, Waiting int
	KV               kv.Stats

	Requests                                 int64 // accepted
	Finished                                 int64
	Aborted                                  int64 // cancelled by their callers
	Failed                                   int64
	Refused                                  int64 // queue full
	Steps                                    int64
	Apart                                    int64 // steps that failed and whose sequences were run one by one
	Preempted                                int64
	PromptTokens, CachedTokens, OutputTokens int64
	Drafted, Accepted                        int64 // tokens
	Verified                                 int64 // sequences whose drafts a step verified
	VerifiedTokens                           int64 // tokens that came out of those
	// Drafts counts drafts by their place in the chain, the first at 0.
	Drafts [spec.Most]DraftCount
	// DraftsEnded counts sequences that stopped drafting because it did not pay, DraftsFailed those whose drafting pass failed.
	DraftsEnded, DraftsFailed int64

	// Plans counts segments that ran, by what they were.
	Plans []PlanCount
	// Conversions and Slices count segments whose rows were converted, and extra launches because a limit was met.
	Conversions, Slices int64
}

// DraftCount is how many drafts at one place of their chains were compared with the target's choice, and how many were it.
type DraftCount struct{ Judged, Right int64 }

// PlanCount is how many rows one kind of segment has carried.
type PlanCount struct {
	Row     plan.RowKind
	Form    plan.Form
	Kernel  plan.Kernel
	Convert plan.Convert
	Steps   int64
	Rows    int64
}

// PlanRecord is one step of the recent past.
type PlanRecord struct {
	Step     int64
	At       time.Time
	Plan     *plan.Plan
	Took     time.Duration // planning, model and sampling
	Requests int
}
