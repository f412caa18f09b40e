package chat

import (
	"strings"

	"sparrow/internal/mark"
)

// DeltaKind is the kind of data in a Delta.
type DeltaKind int

const (
	// DeltaReasoning is text of the reasoning block, in Delta.Text.
	DeltaReasoning DeltaKind = iota + 1
	// DeltaContent is text of the answer, in Delta.Text.
	DeltaContent
	// DeltaToolCall is the start of a call (ID and Name set) or more of its arguments, in Delta.Call.
	DeltaToolCall
)

// String returns the name used in tests and traces.
func (k DeltaKind) String() string {
	switch k {
	case DeltaReasoning:
		return "reasoning"
	case DeltaContent:
		return "content"
	case DeltaToolCall:
		return "tool call"
	}
	return "unknown"
}

// Delta is the next piece of a reply.
type Delta struct {
	Kind      DeltaKind
	Text      string    // text of reasoning or content
	Call      CallDelta // piece of a tool call
	Malformed bool      // whether the text is content that looks like a tool call but does not follow the format
}

// CallDelta is a piece of the Index-th call of a reply. The first piece of a call has ID and Name, and may have
// arguments; the other pieces have only arguments. The pieces of Arguments, joined, are the JSON object of the
// arguments.
type CallDelta struct {
	Index     int
	ID        string
	Name      string
	Arguments string
}

// Parser reads a reply as it is generated.
type Parser interface {
	// Feed parses more text, which may be split at any byte, and returns new deltas. Text that may be the start of a
	// marker is held back until the next call. Marked bytes of text come from tokens that are not control tokens, so
	// they are not part of a marker in Request.CallTokens.
	Feed(text mark.Text) []Delta
	// Close ends the reply and returns the text that was held back. An error wraps ErrMalformedCall or
	// ErrUnfinishedCall; the deltas are valid even with an error.
	Close() ([]Delta, error)
}

// Collector joins deltas into the message they describe. The zero value is ready to use.
type Collector struct {
	reasoning, content strings.Builder
	calls              []Call
	arguments          [][]byte // [calls][bytes]
}

// Add appends deltas to the message.
func (c *Collector) Add(deltas ...Delta) {
	for _, d := range deltas {
		switch d.Kind {
		case DeltaReasoning:
			c.reasoning.WriteString(d.Text)
		case DeltaContent:
			c.content.WriteString(d.Text)
		case DeltaToolCall:
			c.addCall(d.Call)
		}
	}
}

func (c *Collector) addCall(d CallDelta) {
	for len(c.calls) <= d.Index {
		c.calls = append(c.calls, Call{})
		c.arguments = append(c.arguments, nil)
	}
	if d.Name != "" {
		c.calls[d.Index].ID = d.ID
		c.calls[d.Index].Name = d.Name
	}
	c.arguments[d.Index] = append(c.arguments[d.Index], d.Arguments...)
}

// Message returns the assistant's message so far.
func (c *Collector) Message() Message {
	m := Message{Role: Assistant, Reasoning: c.reasoning.String(), Content: c.content.String()}
	for i, call := range c.calls {
		call.Arguments = string(c.arguments[i])
		m.ToolCalls = append(m.ToolCalls, call)
	}
	return m
}

// Parse parses a whole reply at once.
func Parse(p Parser, text string) (Message, error) {
	var c Collector
	c.Add(p.Feed(mark.Plain(text))...)
	last, err := p.Close()
	c.Add(last...)
	return c.Message(), err
}
