package openai

import (
	"sparrow/internal/wire"
	"strings"
)

// The roles of a message.
const (
	RoleSystem    = "system"
	RoleDeveloper = "developer"
	RoleUser      = "user"
	RoleAssistant = "assistant"
	RoleTool      = "tool"
)

// Message is one turn of a conversation in a request.
type Message struct {
	Role    string  `json:"role"`
	Content Content `json:"content"`
	Name    string  `json:"name,omitempty"`
	// ReasoningContent is only for assistant messages. It is also read under vLLM's name, reasoning.
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`   // assistant only
	ToolCallID       string     `json:"tool_call_id,omitempty"` // tool only
}

// Content is the text of a message, one string per content part on the wire. A plain string on the wire is one part;
// nil means no content.
type Content []string

// Text joins the parts with line breaks, as vLLM does for models whose prompts are plain text.
func (c Content) Text() string { return strings.Join(c, "\n") }

// textPart is a content part on the wire.
type textPart struct {
	Type string `json:"type"`
	Text string `json:"text"`
}

// MarshalJSON writes null, a string, or an array of text parts.
func (c Content) MarshalJSON() ([]byte, error) {
	switch len(c) {
	case 0:
		return []byte("null"), nil
	case 1:
		return wire.Marshal(c[0])
	}
	parts := make([]textPart, len(c))
	for i, text := range c {
		parts[i] = textPart{"text", text}
	}
	return wire.Marshal(parts)
}

// ToolCall is a call that the model made, in a response or sent back in a request.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"`     // "function" or "custom"
	Function FunctionCall `json:"function"` // the call; for a custom tool, the arguments are those of [CustomArguments]
}

// MarshalJSON writes a call. For a custom tool it writes the input in the object custom, otherwise the arguments in the
// object function.
func (t ToolCall) MarshalJSON() ([]byte, error) {
	if t.Type != TypeCustom {
		type function ToolCall
		return wire.Marshal(function(t))
	}
	return wire.Marshal(struct {
		ID     string     `json:"id"`
		Type   string     `json:"type"`
		Custom customCall `json:"custom"`
	}{t.ID, t.Type, customCall{t.Function.Name, t.Function.Arguments}})
}

type customCall struct {
	Name  string `json:"name"`
	Input string `json:"input"`
}

// FunctionCall is the name of a function and its arguments, as the JSON text that the model wrote.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}
