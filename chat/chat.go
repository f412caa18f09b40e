package chat

import (
	"encoding/json"

	"sparrow/internal/mark"
)

// Role is the author of a message.
type Role string

// The roles of messages. A format accepts the roles that it has markers for; the error for another role names the role.
const (
	System    Role = "system"
	Developer Role = "developer"
	User      Role = "user"
	Assistant Role = "assistant"
	ToolRole  Role = "tool"
	Reminder  Role = "latest_reminder" // DeepSeek-V4: facts such as the date, placed directly before the reply
)

// Message is one turn of a conversation.
type Message struct {
	Role      Role
	Content   string // visible text; several text parts are joined by the caller
	Reasoning string // assistant only: reasoning before the content
	ToolCalls []Call // assistant only

	ToolCallID string // tool only: id of the call whose result it is; if empty, results are in the order of the calls
	Name       string // optional name of the speaker or of the tool; only templates read it

	Tools          []Tool          // system and developer only: tools that this message declares
	ResponseFormat json.RawMessage // system and developer only: a JSON schema that this message declares
}

// Call is a tool call, made by the model or replayed in a message.
type Call struct {
	ID        string
	Name      string
	Arguments string // a JSON object as text; empty means {}
}

// JSON schema of the arguments; the prompt keeps the order of its keys
type Tool struct {
	Name        string
	Description string
	Parameters  json.RawMessage // JSON schema of the arguments; key order is kept in the prompt
	Strict      bool            // arguments must follow the schema; the caller enforces it, some formats show it
	Enforced    json.RawMessage // schema for the arguments if it differs from Parameters; not part of the prompt
	// Deferred tools may be called but the prompt does not list them: a message shows them.
	Deferred bool
}

// ChoiceMode states whether a reply may or must contain tool calls.
type ChoiceMode int

const (
	// ChoiceAuto allows any number of calls. It is the zero value.
	ChoiceAuto ChoiceMode = iota
	// ChoiceNone allows no calls: the tools are not in the prompt, and no text of the reply is parsed as a call.
	ChoiceNone
	// ChoiceRequired requires at least one call. The prompt is that of ChoiceAuto; the caller constrains the output.
	ChoiceRequired
	// ChoiceFunction requires a call of one named tool. The prompt is that of ChoiceAuto; the caller constrains the
	// output.
	ChoiceFunction
)

// String returns the name used in error messages.
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

// ToolChoice states whether a reply may or must contain tool calls, and of which tool.
type ToolChoice struct {
	Mode ChoiceMode
	Name string // name of the tool, if Mode is ChoiceFunction
}

// Request holds everything that a format needs to write a prompt.
type Request struct {
	Messages   []Message
	Tools      []Tool
	ToolChoice ToolChoice

	// Thinking requests reasoning before the answer. Nil means the family's default: off for DeepSeek, on for GLM,
	// otherwise the template's own default.
	Thinking *bool
	// Effort is the reasoning effort, with the family's own levels ("low", "high", "max"); empty means the family's
	// default.
	Effort string
	// ResponseFormat is the JSON schema of the reply. Families with a place for it in the prompt write it there. The
	// prompt of other families does not change; the caller constrains the output by a grammar in both cases.
	ResponseFormat json.RawMessage

	// AddGenerationPrompt ends the prompt with the start of the model's reply. Servers set it; without it, a
	// conversation is rendered as training text.
	AddGenerationPrompt bool
	// ContinueFinal leaves the last message, which must be the assistant's, open, so that the model continues it.
	ContinueFinal bool

	// ControlTokens makes control tokens spelled in messages and tools effective, so that the sender of a message can
	// begin and end turns. If it is off, the prompt lists such text in Content.
	ControlTokens bool

	// CallTokens lists the markers of calls in [CallSyntax.Markers] that are single tokens. In a reply, the same
	// characters produced by other tokens are text, not a marker.
	CallTokens []string

	// Kwargs are extra template arguments by name, as JSON values. Families without a template accept only the names
	// that they support.
	Kwargs map[string]json.RawMessage

	// Memo caches tools between requests. It may be nil.
	Memo *Memo
	// Begun, if not nil, is the result of Render for this request: whether the prompt ends inside reasoning. Parser
	// then does not render it again.
	Begun *bool

	// NewCallID returns the id of the index-th call of a reply. Nil generates a random id that starts with "call_".
	NewCallID func(index int) string
}

// Prompt is a rendered request.
type Prompt struct {
	Text string
	// Content lists the spans of Text that come from the request and not from the format, ascending and disjoint. The
	// encoder must not match control tokens in them.
	Content []mark.Span
	// HasBOS reports that the text already starts with the beginning-of-sequence marker (or the family's equivalent),
	// so the encoder must not add another one.
	HasBOS bool
	// Stop lists the marker texts that end a reply. Each is one added token of the family's tokenizer.
	Stop []string
	// Markers lists marker texts of this prompt that not every tokenizer of the family has. Each must be one added
	// token.
	Markers []string
	// InReasoning reports that the text ends inside a reasoning block: the reply starts with reasoning.
	InReasoning bool
}

// set stores a rendered text and, unless the request allows control tokens, the spans of its content.
func (p *Prompt) set(req Request, t mark.Text) {
	p.Text = t.String()
	if !req.ControlTokens {
		p.Content = t.Spans()
	}
}

// Format writes the conversations of one model family. Implementations are immutable and safe for concurrent use.
type Format interface {
	// Name returns the family's name, as accepted by Detect.
	Name() string
	// Render writes the prompt. Errors wrap ErrRequest, ErrUnsupported or ErrTemplate.
	Render(Request) (Prompt, error)
	// Parser returns a parser for the reply to the same request. A parser is for one reply and one goroutine.
	Parser(Request) Parser
}
