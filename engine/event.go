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
	FinishStop      Finish = "stop"       // end of sequence, or a stop string or token
	FinishLength    Finish = "length"     // MaxTokens or the context is full
	FinishToolCalls Finish = "tool_calls" // the reply calls tools
	FinishCancelled Finish = "cancelled"  // the caller's context ended
	FinishError     Finish = "error"      // the request failed; Event.Err states why
)

// Event is one token of a choice, or the end of the choice. An event for a plain token allocates nothing.
type Event struct {
	Choice  int
	Token   int32  // -1 without one
	Text    string // whole characters; bytes that form none are U+FFFD
	Decoded int    // bytes of text up to and with this token's; Text may be behind, where a stop string may begin
	Logprob float64
	Top     []sample.TokenLogprob
	// Scores are the next tokens of the prompt with their log probabilities, in an event without a token.
	Scores []sample.Scored
	// Recorded holds the recorded rows that produced the token, or rows of the prompt; nil if nothing is recorded.
	Recorded *record.Rows
	Finish   Finish // set on the last event of a choice, which has no token
	Matched  string // the stop string that ended it
	Err      error  // with FinishError
	Last     bool   // the job's last event
}

// Usage counts the tokens of a request.
type Usage struct {
	PromptTokens     int
	CachedTokens     int // of the prompt, taken from the prefix cache
	CompletionTokens int // over all choices
	ReasoningTokens  int // of them, inside reasoning
	DraftedTokens    int
	AcceptedTokens   int
}

// Trace describes how a request was processed.
type Trace struct {
	ID        string
	Match     kv.Match   // of the first choice's prompt
	Matches   []kv.Match // of every choice: the others share the prompt's pages with the first
	Restored  Restored   // what tiers gave the first choice beyond that
	Queued    time.Duration
	Prefill   time.Duration // from admission to the first token
	Decode    time.Duration
	Steps     int // forward passes
	Preempted int
	Drafts    []DraftCount // of all choices, by their place in the chain
	Plans     []PlanUse

	// Times of events; zero if an event did not happen.
	Arrived, Admitted, First, Ended time.Time
	Suspended                       []Period // from its last step before a preemption to the next one, of any choice
	Compiled                        Period   // of schemas and tools
	Parsed                          Period   // from the first to the last piece of a tool call; set by package sparrow
	Calls                           int      // tool calls that were found; set by package sparrow
}

// Period is the time between two moments.
type Period struct{ From, To time.Time }

// PlanUse is a plan and the number of passes that ran this request with it.
type PlanUse struct {
	Plan  *plan.Plan
	Steps int
}
