package openai

import (
	"encoding/json"
	"sparrow/api/wire"
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
	// assistant only; also read under vLLM's name reasoning
	ReasoningContent string     `json:"reasoning_content,omitempty"`
	ToolCalls        []ToolCall `json:"tool_calls,omitempty"`   // assistant only
	ToolCallID       string     `json:"tool_call_id,omitempty"` // tool only
}

// Content is the text of a message as the parts it was sent in; a plain string is one part, nil is no content at all.
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

// ToolCall is a call the model made, in a response or replayed in a request.
type ToolCall struct {
	ID       string       `json:"id"`
	Type     string       `json:"type"` // always "function"
	Function FunctionCall `json:"function"`
}

// FunctionCall names the function; Arguments is JSON as text, exactly as the model wrote it.
type FunctionCall struct {
	Name      string `json:"name"`
	Arguments string `json:"arguments"`
}

// Tool is a function that the model may call.
type Tool struct {
	Type     string   `json:"type"` // always "function"
	Function Function `json:"function"`
}

// Function describes a callable function.
type Function struct {
	Name        string `json:"name"`
	Description string `json:"description,omitempty"`
	// JSON schema of the arguments, names in the order sent; nil is no arguments
	Parameters json.RawMessage `json:"parameters,omitempty"`
	Strict     *bool           `json:"strict,omitempty"` // arguments must follow the schema
}

// typeFunction is the only type of tools and tool calls.
const typeFunction = "function"

// The modes of a tool choice.
const (
	ChoiceNone     = "none"
	ChoiceAuto     = "auto"
	ChoiceRequired = "required"
	ChoiceFunction = "function" // on the wire an object with the function's name
)

// ToolChoice says how freely the model may call tools.
type ToolChoice struct {
	Mode string
	Name string // the function, when Mode is ChoiceFunction
}

// MarshalJSON writes the mode as a string, or the object that names a function.
func (t ToolChoice) MarshalJSON() ([]byte, error) {
	if t.Mode != ChoiceFunction {
		return wire.Marshal(t.Mode)
	}
	var named struct {
		Type     string `json:"type"`
		Function struct {
			Name string `json:"name"`
		} `json:"function"`
	}
	named.Type, named.Function.Name = typeFunction, t.Name
	return wire.Marshal(named)
}
