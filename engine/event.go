package engine

import (
	"time"

	"sparrow/internal/kv"
	"sparrow/plan"
	"sparrow/record"
	"sparrow/sample"
)

// Finish is the reason why a choice ended.
type Finish string

// Reasons why a choice ends. FinishToolCalls is set by package sparrow, which parses replies.
const (
	FinishStop      Finish = "stop"       // an end-of-sequence token, a stop string or a stop token was found
	FinishLength    Finish = "length"     // MaxTokens tokens were generated, or the context is full
	FinishToolCalls Finish = "tool_calls" // the reply calls tools
	FinishCancelled Finish = "cancelled"  // the caller's context ended
	FinishError     Finish = "error"      // the request failed; Event.Err states why
)

// Event is one token of a choice, or the end of the choice. An event that has only a token allocates nothing.
type Event struct {
	Choice  int
	Token   int32  // token id; -1 if the event has no token
	Text    string // whole characters; bytes that form no character are U+FFFD
	Decoded int    // bytes of text up to the end of this token; text that may begin a stop string is sent later
	Logprob float64
	Top     []sample.TokenLogprob
	// Scores are the next tokens of the prompt with their log probabilities, in an event without a token.
	Scores []sample.Scored
	// Recorded holds the recorded rows that produced the token, or rows of the prompt; nil if nothing is recorded.
	Recorded *record.Rows
	Finish   Finish // set on the last event of a choice, which has no token
	Matched  string // stop string that ended the choice
	Err      error  // error of the request; set if Finish is FinishError
	Last     bool   // the event is the last event of the job
}

// Usage counts the tokens of a request.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // prompt tokens taken from the prefix cache
	CompletionTokens int // generated tokens of all choices
	ReasoningTokens  int // completion tokens inside reasoning
	DraftedTokens    int
	AcceptedTokens   int
}

// Trace describes how a request was processed.
type Trace struct {
	ID    string
	Match kv.Match // result of looking up the first choice's prompt in the prefix cache
	// Matches holds the lookup results of all choices. The other choices reuse the pages of the first choice's prompt.
	Matches   []kv.Match
	Restored  Restored // pages that the first choice got from tiers, in addition to Match
	Queued    time.Duration
	Prefill   time.Duration // time from admission to the first token
	Decode    time.Duration
	Steps     int // number of forward passes
	Preempted int
	Drafts    []DraftCount // drafts of all choices, by position in the chain
	Plans     []PlanUse

	// Times of events; zero if an event did not happen.
	Arrived, Admitted, First, Ended time.Time
	// Suspended lists the periods in which a choice was preempted: from its last step before the preemption to its next
	// step.
	Suspended []Period
	Compiled  Period // time in which schemas and tools were compiled
	// Parsed is the time from the first to the last piece of a tool call; set by package sparrow.
	Parsed Period
	Calls  int // number of parsed tool calls; set by package sparrow
}

// Period is the time from From to To.
type Period struct{ From, To time.Time }

// PlanUse is a plan and the number of passes that ran this request with it.
type PlanUse struct {
	Plan  *plan.Plan
	Steps int
}
