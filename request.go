package sparrow

import (
	"sparrow/chat"
	"sparrow/record"
	"sparrow/sample"
)

// Request describes what to generate. Exactly one of Tokens, Prompt and Chat must be set.
type Request struct {
	Tokens []int32       // prompt as token ids
	Prompt string        // prompt as plain text; if the tokenizer adds a beginning-of-sequence token, it is added
	Chat   *chat.Request // conversation, rendered by the model's chat format; replies are parsed

	// Sampling selects how tokens are chosen. The zero value means sample.Default(); to set some fields, start from
	// sample.Default().
	Sampling sample.Params
	// MaxTokens is the maximum number of tokens of each choice; 0 means as many tokens as the context holds.
	MaxTokens int
	// FitContext reduces MaxTokens if prompt and answer would exceed the context. Without it, such a request is
	// refused.
	FitContext bool
	// MinTokens is the minimum number of tokens of a choice. Before it, neither an end-of-sequence token nor a stop
	// token is chosen, and stop strings are ignored. A complete document of Format ends the choice even before that.
	MinTokens int
	// IgnoreEOS continues after an end-of-sequence token, for load tests. A complete document of Format still ends the
	// choice.
	IgnoreEOS bool
	// Score requests log probabilities of tokens of the prompt; nil requests none.
	Score *Score
	// MaxReasoning is the maximum number of reasoning tokens of a chat; after them the token that ends reasoning is
	// forced. 0 means no limit.
	MaxReasoning int
	// Format constrains the text. The choice ends with FinishStop when the document is complete and cannot continue.
	Format Format

	// Draft is the number of tokens to draft per step: nil means the engine's setting, 0 disables drafting. It changes
	// no answer.
	Draft *int

	// Tenant is the owner of the request. Tenants are served round-robin, and prompts share cached pages only if they
	// have the same tenant and Salt. Requests without a tenant are one tenant, in which sources, such as addresses, are
	// served round-robin.
	Tenant, Salt, Source string
	// Places is the maximum number of running sequences of the tenant: a choice of this request waits while Places or
	// more run. 0 means no limit.
	Places int
	// Admit, if not nil, is called with the number of prompt tokens before the request is queued. An error refuses the
	// request.
	Admit func(tokens int) error
	// Flow names a group of requests. The flows of a tenant are served round-robin, which does not affect other
	// tenants.
	Flow string
	// Priority orders the requests of a tenant: those with higher priority are served first, and may preempt those with
	// lower priority.
	Priority int
	// Background requests use only capacity that no other request of any tenant uses: they are admitted last and
	// preempted first, and wait while prompts of others are computed.
	Background bool
	// Record requests the keys and experts of the request's rows; nil records nothing.
	Record *Record
	// Replay holds recorded rows at consecutive positions. The rows at these positions use the recorded selections and
	// experts.
	Replay []record.Row
	// ID is the id of the request in logs and traces; if empty, one is generated.
	ID string
	// PagesFrom is the HOST:PORT of another engine that has computed the prompt and serves its KV pages
	// (Config.Tiers.Pull); empty means none. The answer does not depend on it.
	PagesFrom string
	// Trace requests a trace of the request: plans, prefix match, time per stage.
	Trace bool
}

// Format is a constraint on the generated text.
type Format struct {
	Kind   FormatKind
	Schema []byte // JSON schema, if Kind is FormatSchema
	Strict bool   // whether a keyword that is unknown or cannot be enforced is an error

	Pattern string   // regular expression, if Kind is FormatPattern
	Choices []string // allowed answers, if Kind is FormatChoice

	// Field is the name of the request field in errors; empty means response_format.
	Field string
}

// FormatKind is the kind of constraint.
type FormatKind uint8

// Kinds of formats. Arguments of tool calls follow the schemas of their tools with every kind.
const (
	FormatFree    FormatKind = iota
	FormatJSON               // any JSON object
	FormatSchema             // JSON document that satisfies Schema
	FormatPattern            // text that matches Pattern as a whole
	FormatChoice             // one of Choices
)

// Ignored is a keyword of a request's schema that is not enforced. An empty Keyword means the whole schema.
type Ignored struct {
	Tool    int    // index of the tool with the schema, or -1 for Format.Schema
	Pointer string // JSON pointer of the object with the keyword, "" for the root
	Keyword string
}

// Event is the next part of one choice. Text is always set, Deltas only for chats. Text contains whole characters;
// invalid bytes, such as an incomplete character at the end, become U+FFFD.
type Event struct {
	Choice int
	Text   string       // new text; may be empty while a character or a possible stop string is incomplete
	Deltas []chat.Delta // Text of a chat, parsed into reasoning, content and calls
	Tokens []Token      // tokens generated since the last event
	Scored []Token      // further prompt tokens with log probabilities, if requested
	// Recorded holds the recorded rows of Tokens, or rows of the prompt; nil if nothing is recorded.
	Recorded *record.Rows
	Finish   Finish // set on the last event of a choice
	Matched  string // stop string that ended the choice
	Err      error  // error of the request; set if Finish is FinishError
	Usage    *Usage // usage of the request; set on its last event
	TraceLog *Trace // trace of the request; set on its last event if requested
}

// Token is a generated or scored token, with log probabilities if requested.
type Token struct {
	ID int32
	// Rank is the rank of a scored token by probability, from 1. It is 0 for the first token of a prompt, which has no
	// probability.
	Rank    int
	Text    string // bytes of the token, which may end inside a character
	Logprob float64
	Top     []sample.TokenLogprob
}
