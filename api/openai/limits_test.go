package openai

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/wire"
)

// repeated returns n JSON values, separated by commas. In text, # stands for the number of the value.
func repeated(n int, text string) string {
	list := make([]string, n)
	for i := range list {
		list[i] = strings.ReplaceAll(text, "#", fmt.Sprint(i))
	}
	return strings.Join(list, ",")
}

// A list or a text of the maximum length is accepted; if it is longer by one, the request is refused with the field's
// name.
func TestLengthsAreExact(t *testing.T) {
	decoders := map[string]func(body string) *wire.Error{
		"chat": func(body string) *wire.Error {
			_, err := DecodeChat(&wire.Decoder{}, []byte(`{"model":"m",`+body+`}`))
			return err
		},
		"completion": func(body string) *wire.Error {
			_, err := DecodeCompletion(&wire.Decoder{}, []byte(`{"model":"m",`+body+`}`))
			return err
		},
		"responses": func(body string) *wire.Error {
			_, err := DecodeResponses(&wire.Decoder{}, []byte(`{"model":"m",`+body+`}`))
			return err
		},
		"score": func(body string) *wire.Error {
			_, err := DecodeScore(&wire.Decoder{}, []byte(`{"model":"m","prompt":"p",`+body+`}`))
			return err
		},
	}
	const hi = `"messages":[{"role":"user","content":"hi"}]`
	bytes := func(format string) func(n int) string {
		return func(n int) string { return fmt.Sprintf(format, strings.Repeat("x", n)) }
	}
	list := func(format, each string) func(n int) string {
		return func(n int) string { return fmt.Sprintf(format, repeated(n, each)) }
	}
	for _, c := range []struct {
		kind, param string
		most        int
		body        func(n int) string
	}{
		{"chat", "messages", 8192, list(`"messages":[%s]`, `{"role":"user","content":""}`)},
		{"chat", "messages[0].content", 1024, list(`"messages":[{"role":"user","content":[%s]}]`,
			`{"type":"text","text":"a"}`)},
		{"chat", "messages[0].tool_calls", 512, list(`"messages":[{"role":"assistant","tool_calls":[%s]}]`,
			`{"id":"#","type":"function","function":{"name":"f","arguments":"{}"}}`)},
		{"chat", "tools", 512, list(hi+`,"tools":[%s]`, `{"type":"function","function":{"name":"f#"}}`)},
		{"chat", "tools[0].function.name", 64,
			bytes(hi + `,"tools":[{"type":"function","function":{"name":"%s"}}]`)},
		{"chat", "stop", 16, list(hi+`,"stop":[%s]`, `"#"`)},
		{"chat", "stop[0]", 1024, bytes(hi + `,"stop":["%s"]`)},
		{"chat", "stop_token_ids", 256, list(hi+`,"stop_token_ids":[%s]`, "#")},
		{"chat", "logit_bias", 1024, list(hi+`,"logit_bias":{%s}`, `"#":1`)},
		{"chat", "chat_template_kwargs", 64, list(hi+`,"chat_template_kwargs":{%s}`, `"k#":1`)},
		{"chat", "cache_salt", 256, bytes(hi + `,"cache_salt":"%s"`)},
		{"completion", "prompt", 1024, list(`"prompt":[%s]`, `"p"`)},
		{"completion", "prompt", 1024, list(`"prompt":[%s]`, `[1]`)},
		{"responses", "metadata", 16, list(`"input":"a","metadata":{%s}`, `"k#":"v"`)},
		{"responses", "metadata", 64, bytes(`"input":"a","metadata":{"%s":"v"}`)},
		{"responses", "metadata", 512, bytes(`"input":"a","metadata":{"k":"%s"}`)},
		{"score", "continuations", 128, list(`"continuations":[%s]`, `"c"`)},
		{"score", "cache_salt", 256, bytes(`"continuations":["c"],"cache_salt":"%s"`)},
	} {
		decode := decoders[c.kind]
		if err := decode(c.body(c.most)); err != nil {
			t.Errorf("%s: %s of length %d: %v", c.kind, c.param, c.most, err)
		}
		if err := decode(c.body(c.most + 1)); err == nil || err.Param != c.param {
			t.Errorf("%s: %s of length %d: %v", c.kind, c.param, c.most+1, err)
		}
	}
}

// A request that was made by a program has the same limits as one that was decoded.
func TestRequestsOfProgramsAreBounded(t *testing.T) {
	message := Message{Role: RoleUser, Content: Content{"a"}}
	for n, refused := range map[int]bool{0: true, 1: false, MaxMessages: false, MaxMessages + 1: true} {
		r := &ChatRequest{Options: Options{Model: "m"}}
		for range n {
			r.Messages = append(r.Messages, message)
		}
		if err := r.Validate(); (err != nil) != refused || err != nil && err.Param != "messages" {
			t.Errorf("%d messages: %v", n, err)
		}
	}
	for n, refused := range map[int]bool{MaxTools: false, MaxTools + 1: true} {
		r := &ChatRequest{Options: Options{Model: "m"}, Messages: []Message{message}}
		for i := range n {
			r.Tools = append(r.Tools, Tool{Type: typeFunction, Function: Function{Name: fmt.Sprint("f", i)}})
		}
		if err := r.Validate(); (err != nil) != refused || err != nil && err.Param != "tools" {
			t.Errorf("%d tools: %v", n, err)
		}
	}
	for n, refused := range map[int]bool{0: true, 1: false, MaxPrompts: false, MaxPrompts + 1: true} {
		r := &CompletionRequest{Options: Options{Model: "m"}, Prompt: Prompt{Texts: make([]string, n)}}
		if err := r.Validate(); (err != nil) != refused || err != nil && err.Param != "prompt" {
			t.Errorf("%d prompts: %v", n, err)
		}
	}
}

// A prompt is scored with continuations of the same kind, none of which is empty.
func TestScoresThatAreRefused(t *testing.T) {
	for _, c := range []struct{ body, param string }{
		{`"prompt":["a","b"],"continuations":["c"]`, "prompt"},
		{`"prompt":"a"`, "continuations"},
		{`"prompt":"a","continuations":[]`, "continuations"},
		{`"prompt":[1],"continuations":[[2],[]]`, "continuations[1]"},
		{`"prompt":[1],"continuations":[[2],[3,-1]]`, "continuations[1][1]"},
		{`"prompt":[1],"continuations":[[2]],"add_special_tokens":true`, "add_special_tokens"},
		{`"prompt":"a","continuations":["c"],"logprobs":21`, "logprobs"},
		{`"prompt":"a","continuations":["c"],"add_special_tokens":true,"logprobs":20`, ""},
		{`"prompt":[1],"continuations":[[2]]`, ""},
	} {
		_, err := DecodeScore(&wire.Decoder{}, []byte(`{"model":"m",`+c.body+`}`))
		if (err != nil) != (c.param != "") || err != nil && err.Param != c.param {
			t.Errorf("%s: %v, want an error about %q", c.body, err, c.param)
		}
	}
}

// In a value that is not a string, escaped quotes and brackets in strings do not end the value.
func TestEscapesInsideOtherValues(t *testing.T) {
	const value = `{"a\"}": ["\\", "]\\\""]}`
	var r CustomInput
	if got := r.Feed(`{"input": ` + value + `, "input2": "x"}`); got != value {
		t.Errorf("%s, want %s", got, value)
	}
}
