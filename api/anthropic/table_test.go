package anthropic

import (
	"testing"

	"sparrow/api/openai"
	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/internal/wire"
)

// Every field of a body is refused, or changes the request, the chat made from it or the list of ignored fields. The
// golden table records the effect of each field.
func TestTableOfFields(t *testing.T) {
	body := `{"model":"m","max_tokens":9,"thinking":{"type":"enabled"},"output_config":{},"tool_choice":{"type":"auto"},
		"tools":[{"name":"f","input_schema":{}}],"system":[{"type":"text","text":"s"}],"messages":[
		{"role":"user","content":[{"type":"text","text":"hi"}]},
		{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"` + openai.Seal("thought") + `"},
			{"type":"tool_use","id":"c","name":"f","input":{}}]},
		{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":"1"}]},
		{"role":"system","content":"new"}]}`
	type decoded struct {
		Request *Request
		Chat    *openai.ChatRequest
		Ignored []string
	}
	with := func(decode func(*wire.Decoder, []byte) (*Request, *wire.Error)) func([]byte) (any, error) {
		return func(body []byte) (any, error) {
			d := &wire.Decoder{}
			r, bad := decode(d, body)
			if bad != nil {
				return nil, bad
			}
			return decoded{r, r.AsChat(), d.Ignored}, nil
		}
	}
	lines := wiretable.Lines(t, "messages", body, with(DecodeMessages),
		wiretable.At(requestFields).With(`{"type":"none"}`),
		wiretable.At(toolFields, "tools", 0).With(`"web_search_1"`, `"custom"`),
		wiretable.At(choiceFields, "tool_choice").With(`"any"`, `"tool"`, `"f"`),
		wiretable.At(thinkingFields, "thinking").With(`"disabled"`, `"adaptive"`, `"between_tools"`, `"omitted"`,
			`"full"`),
		wiretable.At(outputFields, "output_config").With(`"low"`, `{"type":"json_schema","schema":{"a":1}}`),
		wiretable.At(messageFields, "messages", 0).With(`"assistant"`, `"system"`, `"user"`),
		wiretable.At(messageFields, "messages", 3).With(`"assistant"`, `"user"`),
		wiretable.At(blockFields, "messages", 0, "content", 0).With(`"tool_result"`, `"image"`),
		wiretable.At(blockFields, "messages", 1, "content", 0).With(`"text"`, `"redacted_thinking"`),
		wiretable.At(blockFields, "messages", 1, "content", 1),
		wiretable.At(blockFields, "messages", 2, "content", 0).With(`"c"`,
			`[{"type":"tool_reference","tool_name":"f"}]`),
		wiretable.At(plainFields, "system", 0).With(`"x-anthropic-billing-header: 1"`))
	lines = append(lines, wiretable.Lines(t, "count", body, with(DecodeCount),
		wiretable.Object{Names: []string{"max_tokens"}})...)
	lines = append(lines, wiretable.Lines(t, "batch",
		`{"requests":[{"custom_id":"a","params":{}},{"custom_id":"b","params":{}}]}`,
		func(body []byte) (any, error) { return or(DecodeBatch(&wire.Decoder{}, body)) }, wiretable.At(batchFields),
		wiretable.At(itemFields, "requests", 1).With(`"a"`))...)
	table.Check(t, "fields.txt", lines)
}

// or returns v, or bad as an error if bad is not nil. A nil *wire.Error becomes a nil error.
func or[T any](v *T, bad *wire.Error) (any, error) {
	if bad != nil {
		return nil, bad
	}
	return v, nil
}
