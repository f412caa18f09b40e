package ollama

import (
	"encoding/json"
	"testing"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/internal/wire"
)

// Every field of a body is refused, or changes the request, the chat or completion made from it or the list of ignored
// fields. The golden table records the effect of each field.
func TestTableOfFields(t *testing.T) {
	type decoded struct {
		Request    *Request
		Chat       *openai.ChatRequest
		Completion *openai.CompletionRequest
		Ignored    []string
	}
	with := func(decode func(*wire.Decoder, []byte) (*Request, *wire.Error)) func([]byte) (any, error) {
		return func(body []byte) (any, error) {
			d := &wire.Decoder{}
			r, bad := decode(d, body)
			if bad != nil {
				return nil, bad
			}
			out := decoded{Request: r, Ignored: d.Ignored}
			if r.Raw {
				out.Completion = r.AsCompletion()
			} else {
				out.Chat = r.AsChat()
			}
			return out, nil
		}
	}
	const chat = `{"model":"m:latest","options":{},"tools":[{"function":{"name":"f"}}],"messages":[
		{"role":"user","content":"hi"},
		{"role":"assistant","content":"","tool_calls":[{"function":{"name":"f","arguments":{}}},{"function":{"name":"g"}}]},
		{"role":"tool","content":"1","tool_name":"g"},
		{"role":"assistant","tool_calls":[{"function":{"name":"f","arguments":{}}}]},{"role":"tool","content":"2"}]}`
	words := []string{`"json"`, `"high"`, `"assistant"`, `"system"`, `"f"`}
	lines := wiretable.Lines(t, "chat", chat, with(DecodeChat), wiretable.At(chatFields).With(words...),
		wiretable.At(optionFields, "options").With("-2", "11", "3.5"),
		wiretable.At(messageFields, "messages", 0).With(words...),
		wiretable.At(messageFields, "messages", 2).With(words...),
		wiretable.At(messageFields, "messages", 4).With(words...),
		wiretable.At(callFields, "messages", 1, "tool_calls", 0),
		wiretable.At(functionFields, "messages", 1, "tool_calls", 0, "function"))
	lines = append(lines, wiretable.Lines(t, "generate", `{"model":"m","prompt":"p"}`, with(DecodeGenerate),
		wiretable.At(generateFields).With(words...))...)
	lines = append(lines, wiretable.Lines(t, "raw", `{"model":"m","prompt":"p","raw":true,"options":{}}`,
		with(DecodeGenerate), wiretable.At(generateFields), wiretable.At(optionFields, "options"))...)
	lines = append(lines, wiretable.Lines(t, "show", `{"model":"m"}`,
		func(body []byte) (any, error) { return or(DecodeShow(&wire.Decoder{}, body)) }, wiretable.At(showFields))...)
	table.Check(t, "fields.txt", lines)
}

// Both formats of chunks, chat and generate, contain every field.
func TestTableOfChunks(t *testing.T) {
	at := time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC)
	done := &Done{Reason: DoneLength, Total: 11 * time.Second, PromptTokens: 12, PromptTime: 3 * time.Second,
		GeneratedTokens: 14, GeneratedTime: 5 * time.Second}
	calls := []Call{{"a", "f", json.RawMessage(`{"x":1}`)}, {"", "g", json.RawMessage(`{}`)}}
	var lines []string
	for _, c := range []Chunk{{Model: "m", CreatedAt: at, Content: "c", Thinking: "t", Calls: calls, Done: done},
		{Model: "m", CreatedAt: at, Generated: true, Content: "c", Thinking: "t", Done: done},
		{Model: "m", CreatedAt: at, Generated: true}, {Model: "m", CreatedAt: at, Done: &Done{Reason: DoneLoad}}} {
		text, err := c.MarshalJSON()
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, string(text))
	}
	table.Check(t, "chunks.txt", lines)
}

// or returns v, or bad as an error if bad is not nil. A nil *wire.Error becomes a nil error.
func or[T any](v *T, bad *wire.Error) (any, error) {
	if bad != nil {
		return nil, bad
	}
	return v, nil
}
