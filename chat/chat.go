package chat

import (
	"encoding/json"

	"sparrow/internal/mark"
)

// Role is the author of a message.
type Role string

// The roles a message may have. A format accepts those it has markers for and rejects the others by name.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
	Reminder  Role = "latest_reminder" // DeepSeek-V4: facts such as the date, shown right before the reply
)

// Message is one turn of a conversation.
type Message struct {
	Role      Role
	Content   string // visible text; several text parts are joined by the caller
	Reasoning string // assistant only: what was thought before the content
	ToolCalls []Call // assistant only

	ToolCallID string // tool only: the call this is the result of; empty means "in the order of the calls"
	Name       string // optional name of the speaker or of the tool; only templates read it

	Tools          []Tool          // system and developer only: tools declared by this message rather than the request
	ResponseFormat json.RawMessage // system and developer only: a JSON schema declared by this message
}

// Call is a tool call, made by the model or replayed in a message.
type Call struct {
	ID        string
	Name      string
	Arguments string // a JSON object as text; empty means {}
}

// Tool is a function the model may call.
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of the arguments; key order is kept in the prompt
	Strict      bool            // arguments must follow the schema; enforced by the caller, shown by some formats
	Enforced    json.RawMessage // schema that the arguments are held to, where it is not Parameters; never shown
	// Deferred tools may be called and are not listed: a message of the conversation shows them.
	Deferred bool
}

// ChoiceMode states how freely the model may call tools.
type ChoiceMode int

const (
	// ChoiceAuto lets the model decide. It is the zero value.
	ChoiceAuto ChoiceMode = iota
	// ChoiceNone hides the tools: they are not in the prompt and nothing in the reply is read as a call.
	ChoiceNone
	// ChoiceRequired asks for at least one call. The prompt is that of ChoiceAuto; the caller constrains the output.
	ChoiceRequired
	// ChoiceFunction asks for a call of one named tool. The prompt is that of ChoiceAuto; the caller constrains the
	// output.
	ChoiceFunction
)

// String is the name used in error messages.
func (m ChoiceMode) String() string {
	switch m {
	case ChoiceAuto:
		return "auto"
	case ChoiceNone:
		return "none"
	case ChoiceRequired:
		return "required"
	case ChoiceFunction:
		return "function"
	}
	return "unknown"
}

// ToolChoice is the request's wish about tool calls.
type ToolChoice struct {
	Mode ChoiceMode
	Name string // the tool, when Mode is ChoiceFunction
}

// Request is everything a format needs to write a prompt.
type Request struct {
	Messages   []Message
	Tools      []Tool
	ToolChoice ToolChoice

	// Thinking asks for reasoning before the answer. Nil is the family's default: off for DeepSeek, on for GLM, the
	// template's own default otherwise.
	Thinking *bool
	// Effort is how much to think, in the family's own words ("low", "high", "max"); empty is the family's default.
	Effort string
	// ResponseFormat is the JSON schema of the reply. Families with a place for it show it to the model; the others
	// leave the prompt alone, because the caller constrains the output by grammar anyway.
	ResponseFormat json.RawMessage

	// AddGenerationPrompt ends the prompt where the model's reply starts. Servers set it; it is off only to render a
	// conversation as training text.
	AddGenerationPrompt bool
	// ContinueFinal leaves the last message, which must be the assistant's, open so that the model continues with it.
	ContinueFinal bool

	// ControlTokens lets the text of messages and tools hold control tokens: their spelling becomes the token, so
	// any caller that writes a message can begin and end turns. Off, the prompt marks that text as Content.
	ControlTokens bool

	// CallTokens are markers of calls that are single tokens, among those of [CallSyntax.Markers]. In a reply only
	// the token is the marker; its characters, written by other tokens, are text.
	CallTokens []string

	// Kwargs are extra template arguments by name, as JSON values. Native families accept the names they know and
	// reject the rest.
	Kwargs map[string]json.RawMessage

	// Memo stores tools between requests; nil does not.
	Memo *Memo
	// Begun, where not nil, is the result of Render for this request: whether the prompt ends inside reasoning. Parser
	// then does not render it again.
	Begun *bool

	// NewCallID names the index-th call of a reply. Nil makes a random name that starts with "call_".
	NewCallID func(index int) string
}

// Prompt is a rendered request.
type Prompt struct {
	Text string
	// Content are the spans of Text that were written by the request and not by the format, ascending and disjoint.
	// The encoder must find no control token in them.
	Content []mark.Span
	// HasBOS reports that the text already starts with the beginning-of-sequence marker (or the family's equivalent),
	// so the encoder must not add another one.
	HasBOS bool
	// Stop are the marker texts that end a reply. Each is one added token of the family's tokenizer.
	Stop []string
	// Markers are marker texts of this prompt that not every tokenizer of the family has. Each must be one added token.
	Markers []string
	// InReasoning reports that the text ends inside a reasoning block: the reply starts with reasoning.
	InReasoning bool
}

// set takes over a rendered text.
func (p *Prompt) set(req Request, t mark.Text) {
	p.Text = t.String()
	if !req.ControlTokens {
		p.Content = t.Spans()
	}
}

// Format is one way of writing conversations. Implementations are immutable and safe for concurrent use.
type Format interface {
	// Name is the family's name, as accepted by Detect.
	Name() string
	// Render writes the prompt. Errors wrap ErrRequest, ErrUnsupported or ErrTemplate.
	Render(Request) (Prompt, error)
	// Parser reads the reply to the same request. It is for one reply and one goroutine.
	Parser(Request) Parser
}
