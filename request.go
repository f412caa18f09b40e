package sparrow

import (
	"sparrow/chat"
	"sparrow/record"
	"sparrow/sample"
)

// Request describes what to generate. Exactly one of Tokens, Prompt and Chat is set.
type Request struct {
	Tokens []int32       // a prompt as token ids
	Prompt string        // a prompt as plain text; the beginning-of-sequence token is added where the tokenizer adds it
	Chat   *chat.Request // a conversation, rendered by the model's chat format; replies are parsed

	// Sampling is how tokens are chosen. The zero value is sample.Default; a caller that sets a field starts from that.
	Sampling sample.Params
	// MaxTokens bounds the tokens of each choice; 0 means as many as the context holds.
	MaxTokens int
	// FitContext reduces a MaxTokens above what the context holds after the prompt; otherwise it is refused.
	FitContext bool
	// MinTokens keeps a choice from ending earlier: before that many tokens neither an end-of-sequence token nor one of
	// the stop tokens is chosen, and stop strings are not looked for. A Format whose document is complete ends the
	// choice anyway.
	MinTokens int
	// IgnoreEOS continues after an end-of-sequence token, which adds no text, for load tests. A Format ends the choice
	// anyway.
	IgnoreEOS bool
	// Score asks for log probabilities of the prompt's own tokens; nil computes none.
	Score *Score
	// MaxReasoning bounds the tokens of the reasoning that the prompt of a chat begins: the token that ends it comes
	// next then. 0 means no bound.
	MaxReasoning int
	// Format constrains the text. The choice ends with FinishStop as soon as nothing can follow the document.
	Format Format

	// Draft is how many tokens are drafted at a time: nil leaves it to the engine, 0 drafts none. It changes no answer.
	Draft *int

	// Tenant is the owner of the request: tenants take turns, and prompts share cached pages only under the same tenant
	// and the same Salt. Requests without one are of one tenant, in which those of different sources, such as
	// addresses, take turns like tenants.
	Tenant, Salt, Source string
	// Places is the number of running sequences of the tenant up to which a choice of this request is admitted; 0 means
	// no bound.
	Places int
	// Admit, where set, is called with the number of prompt tokens before the request is queued; an error refuses it.
	Admit func(tokens int) error
	// Flow divides the tenant's share of the machine: requests of one flow take turns with those of others of the same
	// tenant. It changes nothing for other tenants.
	Flow string
	// Priority orders the requests of a tenant: a higher one is served first, and may suspend lower ones that run.
	Priority int
	// Background requests run where those of all tenants leave room: they are admitted last and suspended first, and
	// wait while prompts of others are computed.
	Background bool
	// Record asks for which keys rows attended to, and which experts computed them; nil records nothing.
	Record *Record
	// Replay are rows that were recorded before, one position after the other: rows of these positions use the given
	// selections and experts instead of choosing.
	Replay []record.Row
	// ID names the request in logs and traces; empty gets one.
	ID string
	// PagesFrom is the host and port of another engine that has computed the prompt and serves its pages
	// (Config.Tiers.Pull); empty means none. Whatever happens there, the answer is the same.
	PagesFrom string
	// Trace keeps what happened to the request: plans, prefix match, time per stage.
	Trace bool
}

// Format is a constraint on the generated text.
type Format struct {
	Kind   FormatKind
	Schema []byte // JSON schema, for FormatSchema
	Strict bool   // refuse a schema with a keyword that is unknown or cannot be enforced

	Pattern string   // regular expression, for FormatPattern
	Choices []string // for FormatChoice

	// Field is the name of the format in errors; empty is response_format.
	Field string
}

// FormatKind is how text is constrained.
type FormatKind uint8

// The constraints. The arguments of tool calls follow their tools' schemas whatever the format.
const (
	FormatFree    FormatKind = iota
	FormatJSON               // one JSON object
	FormatSchema             // JSON that follows Schema
	FormatPattern            // text that Pattern matches as a whole
	FormatChoice             // one of Choices
)

// Ignored is a keyword of a schema in a request that the answer need not follow. Without a keyword it is the whole
// schema.
type Ignored struct {
	Tool    int    // index of the tool whose schema it is, or -1 for the Format's
	Pointer string // JSON pointer of the object that has the keyword, "" for the root
	Keyword string
}

// Event is something that happened to one choice of a request. Deltas is set for chats, Text always. Text is whole
// characters: bytes that form none, such as a character the choice ended in the middle of, are U+FFFD.
type Event struct {
	Choice   int
	Text     string       // new text; may be empty while a character or a stop string is incomplete
	Deltas   []chat.Delta // the same, parsed
	Tokens   []Token      // the tokens after it
	Scored   []Token      // the next tokens of the prompt with their log probabilities, where asked for
	Recorded *record.Rows // rows that produced Tokens, or rows of the prompt, where they are recorded
	Finish   Finish       // set on the last event of a choice
	Matched  string       // the stop string that ended it
	Err      error        // with FinishError
	Usage    *Usage       // on the last event of the request
	TraceLog *Trace       // on the last event of the request, when asked for
}

// Token is one generated or scored token with its log probabilities when asked for.
type Token struct {
	ID      int32
	Rank    int    // of a scored token, 1 for the likeliest; 0 for the first of a prompt, which has no probability
	Text    string // its bytes as they are; not always whole characters
	Logprob float64
	Top     []sample.TokenLogprob
}
