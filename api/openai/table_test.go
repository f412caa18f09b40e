package openai

import (
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
	"sparrow/internal/testkit/wiretable"
	"sparrow/internal/wire"
)

// Every field of a body is refused, or changes the request, the chat made from it or the list of ignored fields. The
// golden table records the effect of each field.
func TestTableOfFields(t *testing.T) {
	const options = `"model":"m","stream":true,"stream_options":{},"kv_transfer_params":{},"response_format":{"type":"json_schema",
		"json_schema":{"name":"n","schema":{}}},"sparrow":{"selections":{},"replay":{"rows":[{"position":1,
		"layers":[{"layer":1,"keys":2}],"experts":[{"layer":1,"ids":"AQ=="}]}]}}`
	words := []string{`"low"`, `"none"`, `"required"`, `"json_object"`, `"choice"`, `"assistant"`}
	lines := wiretable.Lines(t, "chat", `{`+options+`,"thinking":{"type":"enabled"},
		"tools":[{"type":"function","function":{"name":"f"}},{"type":"custom","custom":{"name":"g","format":{"type":"grammar",
		"grammar":{"syntax":"lark","definition":"start: \"a\""}}}}],
		"tool_choice":{"type":"function","function":{"name":"f"}},"messages":[{"role":"user","content":[{"type":"text",
		"text":"hi"}]},{"role":"assistant","content":null,"tool_calls":[{"id":"c","type":"function","function":{"name":"f",
		"arguments":"{}"}}]},{"role":"tool","content":"1","tool_call_id":"c"}]}`, keeping(DecodeChat, nil),
		wiretable.At(chatFields).With(words...), wiretable.At(streamOptionFields, "stream_options"),
		wiretable.At(transferFields, "kv_transfer_params").With("65536"), wiretable.At(extensionFields, "sparrow"),
		wiretable.At(selectionFields, "sparrow", "selections").With(`"all"`, `"output"`, "[1,2]"),
		wiretable.At(recordedFields, "sparrow", "replay").With("[[1,2]]"),
		wiretable.At(rowFields, "sparrow", "replay", "rows", 0),
		wiretable.At(layerFields, "sparrow", "replay", "rows", 0, "layers", 0).With(`"AQ=="`),
		wiretable.At(expertFields, "sparrow", "replay", "rows", 0, "experts", 0).With(`"AQ=="`),
		wiretable.At(formatFields, "response_format").With(words...),
		wiretable.At(schemaFields, "response_format", "json_schema"),
		wiretable.At(thinkingFields, "thinking").With(`"disabled"`),
		wiretable.At(toolFields, "tools", 0).With(`"custom"`), wiretable.At(functionFields, "tools", 0, "function"),
		wiretable.At(customFields, "tools", 1, "custom"),
		wiretable.At(namedChoiceFields, "tool_choice"), wiretable.At(choiceNameFields, "tool_choice", "function"),
		wiretable.At(messageFields, "messages", 0).With(words...),
		wiretable.At(messageFields, "messages", 1).With(words...), wiretable.At(messageFields, "messages", 2),
		wiretable.At(partFields, "messages", 0, "content", 0),
		wiretable.At(toolCallFields, "messages", 1, "tool_calls", 0).With(`"custom"`),
		wiretable.At(functionCallFields, "messages", 1, "tool_calls", 0, "function").With(`"{"`))
	lines = append(lines, wiretable.Lines(t, "plain chat", `{"model":"m","messages":[{"role":"user","content":"hi"}]}`,
		keeping(DecodeChat, nil), wiretable.At(optionFields).With("-2", "2.5", "11", "21", "129"),
		wiretable.At(guidedFields),
		wiretable.Object{Names: []string{"stream_options", "max_tokens", "max_completion_tokens", "top_logprobs"}})...)
	lines = append(lines, wiretable.Lines(t, "completion", `{"model":"m","prompt":"p","max_tokens":2}`,
		keeping(DecodeCompletion, nil), wiretable.At(completionFields).With("[[1]]", "-2", "21"))...)
	lines = append(lines, wiretable.Lines(t, "streamed completion",
		`{"model":"m","prompt":"p","max_tokens":2,"stream":true,"echo":true,"logprobs":1}`,
		keeping(DecodeCompletion, nil),
		wiretable.Object{Names: []string{"n", "prompt_logprobs", "logprobs", "max_tokens", "min_tokens"}})...)
	lines = append(lines, wiretable.Lines(t, "responses", `{"model":"m","text":{"format":{"type":"json_schema","name":"n",
		"schema":{}}},"reasoning":{},"metadata":{},"tools":[{"type":"function","name":"f"},{"type":"namespace","name":"s",
		"tools":[{"type":"function","name":"g"}]}],"tool_choice":{"type":"function","name":"f"},"input":[{"type":"message",
		"role":"user","content":[{"type":"input_text","text":"hi"}]},{"type":"reasoning","content":[{"type":"reasoning_text",
		"text":"hm"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},{"type":"function_call_output",
		"call_id":"c","output":"1"}]}`,
		keeping(DecodeResponses, func(r *ResponsesRequest) any { return r.AsChat(r.Input) }),
		wiretable.At(responsesFields).With(`"auto"`, `"disabled"`, `["message.output_text.logprobs"]`,
			`["reasoning.encrypted_content"]`, "21"),
		wiretable.At(textConfigFields, "text"), wiretable.At(textFormatFields, "text", "format").With(`"text"`),
		wiretable.At(reasoningFields, "reasoning").With(`"low"`, `"auto"`),
		wiretable.At(responseToolFields, "tools", 0).With(`"custom"`, `"web_search"`),
		wiretable.At(namespaceFields, "tools", 1), wiretable.At(responseChoiceFields, "tool_choice").With(`"custom"`, `"f"`),
		wiretable.At(itemFields, "input", 0).With(`"assistant"`, `"developer"`, `"item_reference"`),
		wiretable.At(itemFields, "input", 1).With(`"`+Seal("thought")+`"`, `[{"type":"summary_text","text":"s"}]`),
		wiretable.At(itemFields, "input", 2).With(`"custom_tool_call"`), wiretable.At(itemFields, "input", 3),
		wiretable.At(textPartFields, "input", 0, "content", 0))...)
	lines = append(lines, wiretable.Lines(t, "score", `{"model":"m","prompt":"p","continuations":["a"]}`,
		keeping(DecodeScore, nil), wiretable.At(scoreFields).With("[[1]]", "21"))...)
	lines = append(lines, wiretable.Lines(t, "tokenize", `{"prompt":"p"}`, keeping(DecodeTokenize, nil),
		wiretable.At(tokenizeFields))...)
	lines = append(lines, wiretable.Lines(t, "detokenize", `{"tokens":[1]}`, keeping(DecodeDetokenize, nil),
		wiretable.At(detokenizeFields))...)
	lines = append(lines, wiretable.Lines(t, "batch",
		`{"input_file_id":"f","endpoint":"/v1/completions","completion_window":"24h"}`, keeping(DecodeBatch, nil),
		wiretable.At(batchFields).With(`"/v1/responses"`))...)
	table.Check(t, "fields.txt", lines)
}

// keeping returns a decoder that also returns the list of ignored fields and the chat that the request becomes.
func keeping[T any](decode func(*wire.Decoder, []byte) (*T, *wire.Error),
	as func(*T) any) func([]byte) (any, error) {
	return func(body []byte) (any, error) {
		d := &wire.Decoder{}
		r, bad := decode(d, body)
		if bad != nil {
			return nil, bad
		}
		out := []any{r, strings.Join(d.Ignored, " ")}
		if as != nil {
			out = append(out, as(r))
		}
		return out, nil
	}
}

// A list with the maximum number of entries is accepted, and a list with one more entry is refused.
func TestMostEntries(t *testing.T) {
	entries := func(n int, value string) string {
		var list []string
		for i := range n {
			list = append(list, strings.Replace(value, "#", string(rune('a'+i%26))+strings.Repeat("x", i/26), 1))
		}
		return strings.Join(list, ",")
	}
	for _, c := range []struct {
		n       int
		refused bool
	}{{MaxMetadata, false}, {MaxMetadata + 1, true}} {
		r, bad := DecodeResponses(&wire.Decoder{}, []byte(`{"model":"m","input":"hi","metadata":{`+
			entries(c.n, `"#":"v"`)+`}}`))
		if (bad != nil) != c.refused || bad == nil && len(r.Metadata) != c.n {
			t.Errorf("%d entries of metadata: %+v, %v", c.n, r, bad)
		}
	}
}
