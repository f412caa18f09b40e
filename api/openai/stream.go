package openai

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sparrow/internal/wire"
	"strconv"
)

// stream holds the JSON text that all events of a stream share.
type stream struct {
	head []byte // from "data: " to the opening bracket of choices
	tail []byte // from the closing bracket of choices to the end of the event
}

// newStream prepares the shared text. With usage, the field usage is null in every chunk except the closing one.
func newStream(h Head, usage bool) stream {
	head := append([]byte(nil), `data: {"id":`...)
	head = wire.AppendString(head, h.ID)
	head = append(head, `,"object":`...)
	head = wire.AppendString(head, h.Object)
	head = append(head, `,"created":`...)
	head = strconv.AppendInt(head, h.Created, 10)
	head = append(head, `,"model":`...)
	head = wire.AppendString(head, h.Model)
	if h.SystemFingerprint != "" {
		head = append(head, `,"system_fingerprint":`...)
		head = wire.AppendString(head, h.SystemFingerprint)
	}
	tail := "]}\n\n"
	if usage {
		tail = "],\"usage\":null}\n\n"
	}
	return stream{head: append(head, `,"choices":[`...), tail: []byte(tail)}
}

// Counts holds the token counts of a stream so far.
type Counts struct{ Prompt, Completion int }

// close ends an event. With so it writes the usage so far, otherwise null if the stream has the field usage.
func (s *stream) close(dst []byte, so *Counts) []byte {
	if so == nil {
		return append(dst, s.tail...)
	}
	for _, m := range []struct {
		name  string
		count int
	}{{`],"usage":{"prompt_tokens":`, so.Prompt}, {`,"completion_tokens":`, so.Completion},
		{`,"total_tokens":`, so.Prompt + so.Completion}} {
		dst = strconv.AppendInt(append(dst, m.name...), int64(m.count), 10)
	}
	return append(dst, "}}\n\n"...)
}

// ChatStream writes the events of one chat stream. It is read-only once made; all methods append to dst and return it.
type ChatStream struct{ stream }

// NewChatStream prepares a stream; it sets the head's object to ObjectChatChunk. usage, the result of
// [Options.WantsUsage], adds a closing chunk with usage.
func NewChatStream(h Head, usage bool) *ChatStream {
	h.Object = ObjectChatChunk
	return &ChatStream{newStream(h, usage)}
}

// Append writes a chunk with one choice and, if so is not nil, the token counts so far. It allocates nothing if dst has
// enough capacity.
func (s *ChatStream) Append(dst []byte, c *ChunkChoice, so *Counts) []byte {
	dst = append(dst, s.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(c.Index), 10)
	dst = append(dst, `,"delta":`...)
	dst = appendDelta(dst, &c.Delta)
	dst = append(dst, `,"logprobs":`...)
	dst = appendChatLogprobs(dst, c.Logprobs)
	dst = append(dst, `,"finish_reason":`...)
	dst = appendFinish(dst, c.FinishReason)
	if c.Sparrow != nil {
		dst = c.Sparrow.AppendJSON(append(dst, `,"sparrow":`...))
	}
	return s.close(append(dst, '}'), so)
}

// CompletionStream writes the events of one text completion stream, like [ChatStream].
type CompletionStream struct{ stream }

// NewCompletionStream prepares a stream like [NewChatStream].
func NewCompletionStream(h Head, usage bool) *CompletionStream {
	h.Object = ObjectCompletion
	return &CompletionStream{newStream(h, usage)}
}

// Append writes a chunk with one choice and, if so is not nil, the token counts so far. It allocates nothing if dst has
// enough capacity.
func (s *CompletionStream) Append(dst []byte, c *CompletionChoice, so *Counts) []byte {
	dst = append(dst, s.head...)
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(c.Index), 10)
	dst = append(dst, `,"text":`...)
	dst = wire.AppendString(dst, c.Text)
	dst = append(dst, `,"logprobs":`...)
	dst = appendCompletionLogprobs(dst, c.Logprobs)
	dst = append(dst, `,"finish_reason":`...)
	dst = appendFinish(dst, c.FinishReason)
	if c.Sparrow != nil {
		dst = c.Sparrow.AppendJSON(append(dst, `,"sparrow":`...))
	}
	return s.close(append(dst, '}'), so)
}

// AppendClosing writes the chunk without choices that contains usage, the trace, or both. It writes nothing if both are
// nil, and returns an error if the trace is not JSON.
func (s *stream) AppendClosing(dst []byte, usage *Usage, trace json.RawMessage) ([]byte, error) {
	if usage == nil && trace == nil {
		return dst, nil
	}
	out := append(dst, s.head...)
	out = append(out, ']')
	if usage != nil {
		text, err := wire.Marshal(usage)
		if err != nil {
			return dst, fmt.Errorf("openai: closing chunk: usage: %w", err)
		}
		out = append(append(out, `,"usage":`...), text...)
	}
	if trace != nil {
		// A line break inside the trace would end the event.
		var compact bytes.Buffer
		if err := json.Compact(&compact, trace); err != nil {
			return dst, fmt.Errorf("openai: closing chunk: trace: %w", err)
		}
		out = append(append(out, `,"sparrow":`...), compact.Bytes()...)
	}
	return append(out, "}\n\n"...), nil
}

// AppendDone writes the event that ends a stream.
func AppendDone(dst []byte) []byte { return append(dst, "data: [DONE]\n\n"...) }

// AppendError writes an error in the middle of a stream, after the status was sent. Clients report it as an exception.
func AppendError(dst []byte, e *wire.Error) []byte {
	dst = append(dst, `data: {"error":{"message":`...)
	dst = wire.AppendString(dst, e.Message)
	dst = append(dst, `,"type":`...)
	dst = wire.AppendString(dst, errorType(e.Status()))
	dst = append(dst, `,"param":`...)
	dst = appendOrNull(dst, e.Param)
	dst = append(dst, `,"code":`...)
	dst = appendOrNull(dst, string(e.Code))
	return append(dst, "}}\n\n"...)
}

// AppendKeepAlive writes a comment, which clients skip, so that proxies do not close the connection during a long
// prefill.
func AppendKeepAlive(dst []byte) []byte { return append(dst, ": waiting\n\n"...) }

func appendDelta(dst []byte, d *Delta) []byte {
	dst = append(dst, '{')
	members := 0
	if d.Role != "" {
		dst = appendMember(dst, &members, "role", d.Role)
	}
	if d.Content != "" || d.Role != "" {
		dst = appendMember(dst, &members, "content", d.Content)
	}
	if d.ReasoningContent != "" {
		dst = appendMember(dst, &members, "reasoning_content", d.ReasoningContent)
	}
	if len(d.ToolCalls) > 0 {
		dst = append(comma(dst, members), `"tool_calls":[`...)
		for i := range d.ToolCalls {
			dst = appendCallDelta(comma(dst, i), &d.ToolCalls[i])
		}
		dst = append(dst, ']')
		members++
	}
	if d.FunctionCall != nil {
		dst = append(comma(dst, members), `"function_call":{`...)
		dst = append(appendFunction(dst, d.FunctionCall, "arguments"), '}')
	}
	return append(dst, '}')
}

// appendMember writes a member with a string value and increments *members. The name needs no escapes.
func appendMember(dst []byte, members *int, name, value string) []byte {
	dst = append(comma(dst, *members), '"')
	dst = append(dst, name...)
	dst = append(dst, '"', ':')
	*members++
	return wire.AppendString(dst, value)
}

func appendCallDelta(dst []byte, t *ToolCallDelta) []byte {
	dst = append(dst, `{"index":`...)
	dst = strconv.AppendInt(dst, int64(t.Index), 10)
	members := 1
	if t.ID != "" {
		dst = appendMember(dst, &members, "id", t.ID)
	}
	if t.Type != "" {
		dst = appendMember(dst, &members, "type", t.Type)
	}
	if t.Custom {
		dst = appendFunction(append(dst, `,"custom":{`...), &t.Function, "input")
	} else {
		dst = appendFunction(append(dst, `,"function":{`...), &t.Function, "arguments")
	}
	return append(dst, "}}"...)
}

// appendFunction writes the members of a piece of a call; text is the name of the member that holds the arguments.
func appendFunction(dst []byte, f *FunctionDelta, text string) []byte {
	members := 0
	if f.Name != "" {
		dst = appendMember(dst, &members, "name", f.Name)
	}
	return appendMember(dst, &members, text, f.Arguments)
}

func appendFinish(dst []byte, f FinishReason) []byte { return appendOrNull(dst, string(f)) }

func appendOrNull(dst []byte, s string) []byte {
	if s == "" {
		return append(dst, "null"...)
	}
	return wire.AppendString(dst, s)
}
