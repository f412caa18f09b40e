package sparrow

import (
	"sparrow/chat"
	"sparrow/record"
	"sparrow/sample"
)

// Request describes what to generate. Exactly one of Tokens, Prompt and Chat is set.
type Request struct {
	Tokens []int32       // prompt as token ids
	Prompt string        // prompt as plain text; the beginning-of-sequence token is added if the tokenizer adds it
	Chat   *chat.Request // conversation, rendered by the model's chat format; replies are parsed

	// Sampling selects how tokens are chosen. The zero value means sample.Default; a caller that sets some fields must
	// start from sample.Default.
	Sampling sample.Params
	// MaxTokens is the maximum number of tokens of each choice; 0 means as many tokens as the context holds.
	MaxTokens int
	// FitContext reduces a MaxTokens that is larger than the context allows after the prompt; otherwise such a request
	// is refused.
	FitContext bool
	// MinTokens is the minimum number of tokens of a choice: before that number is reached, neither an end-of-sequence
	// token nor a stop token is chosen, and stop strings are ignored. A Format whose document is complete ends the
	// choice anyway.
	MinTokens int
	// IgnoreEOS continues generating after an end-of-sequence token, which adds no text; it is for load tests. A Format
	// ends the choice anyway.
	IgnoreEOS bool
	// Score requests log probabilities of the prompt's own tokens; nil computes none.
	Score *Score
	// MaxReasoning is the maximum number of tokens of the reasoning that the prompt of a chat begins; after them the
	// token that ends reasoning is forced. 0 means no limit.
	MaxReasoning int
	// Format constrains the text. The choice ends with FinishStop as soon as nothing can follow the document.
	Format Format

	// Draft is the number of tokens that are drafted at a time: nil uses the engine's setting, 0 disables drafting. It
	// changes no answer.
	Draft *int

	// Tenant is the owner of the request: tenants take turns, and prompts share cached pages only under the same tenant
	// and the same Salt. Requests without a tenant form one tenant, in which different sources, such as addresses, take
	// turns like tenants.
	Tenant, Salt, Source string
	// Places limits the running sequences of the tenant: a choice of this request is admitted only while fewer
	// sequences of the tenant run; 0 means no limit.
	Places int
	// Admit, if set, is called with the number of prompt tokens before the request is queued; an error refuses the
	// request.
	Admit func(tokens int) error
	// Flow divides the tenant's share of the machine: requests of different flows of a tenant take turns. It changes
	// nothing for other tenants.
	Flow string
	// Priority orders the requests of a tenant: requests of higher priority are served first, and may suspend running
	// requests of lower priority.
	Priority int
	// Background requests use only capacity that the other requests of all tenants leave free: they are admitted last
	// and suspended first, and wait while prompts of others are computed.
	Background bool
	// Record requests the keys that rows attended to, and the experts that computed the rows; nil records nothing.
	Record *Record
	// Replay holds rows that were recorded before, at consecutive positions: the rows of these positions use the given
	// selections and experts instead of computing their own.
	Replay []record.Row
	// ID is the id of the request in logs and traces; if empty, one is generated.
	ID string
	// PagesFrom is the host and port of another engine that has computed the prompt and serves its pages
	// (Config.Tiers.Pull); empty means none. The answer does not depend on that engine.
	PagesFrom string
	// Trace records the processing of the request: plans, prefix match, time per stage.
	Trace bool
}

// Format is a constraint on the generated text.
type Format struct {
	Kind   FormatKind
	Schema []byte // JSON schema, if Kind is FormatSchema
	Strict bool   // refuse a schema with a keyword that is unknown or cannot be enforced

	Pattern string   // regular expression, if Kind is FormatPattern
	Choices []string // allowed answers, if Kind is FormatChoice

	// Field is the name of the format in errors; empty means response_format.
	Field string
}

// FormatKind is the kind of constraint.
type FormatKind uint8

// The constraints. With any format, the arguments of tool calls follow the schemas of their tools.
const (
	FormatFree    FormatKind = iota
	FormatJSON               // one JSON object
	FormatSchema             // JSON that follows Schema
	FormatPattern            // text that Pattern matches as a whole
	FormatChoice             // one of Choices
)

// Ignored is a keyword of a schema in a request that is not enforced. If Keyword is empty, the whole schema is not
// enforced.
type Ignored struct {
	Tool    int    // index of the tool that has the schema, or -1 for the schema of Format
	Pointer string // JSON pointer of the object that has the keyword, "" for the root
	Keyword string
}

// Event is an event of one choice of a request. Deltas is set for chats, Text always. Text contains whole characters:
// bytes that form none, such as an incomplete character at the end, are U+FFFD.
type Event struct {
	Choice int
	Text   string       // new text; may be empty while a character or a stop string is incomplete
	Deltas []chat.Delta // Text of a chat, parsed into pieces of the reply
	Tokens []Token      // generated tokens of this event
	Scored []Token      // next tokens of the prompt with their log probabilities, if requested
	// Recorded holds the recorded rows that produced Tokens, or recorded rows of the prompt; nil if nothing is
	// recorded.
	Recorded *record.Rows
	Finish   Finish // set on the last event of a choice
	Matched  string // stop string that ended the choice
	Err      error  // error of the request; set if Finish is FinishError
	Usage    *Usage // usage of the request; set on its last event
	TraceLog *Trace // trace of the request; set on its last event if requested
}

// Token is one generated or scored token, with its log probabilities if requested.
type Token struct {
	ID int32
	// Rank is the rank of a scored token by probability, from 1; 0 for the first token of a prompt, which has no
	// probability.
	Rank    int
	Text    string // bytes of the token; not always whole characters
	Logprob float64
	Top     []sample.TokenLogprob
}
