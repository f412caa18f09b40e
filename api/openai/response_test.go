package openai

import (
	"encoding/json"
	"math"
	"sparrow/internal/wire"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// flat removes the line breaks and the indentation of a golden text. Strings inside the text contain neither.
func flat(text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString(strings.TrimSpace(line))
	}
	return b.String()
}

// checkGolden checks that v is encoded as golden, byte for byte, and that golden is decoded to v.
func checkGolden[T any](t *testing.T, name string, v T, golden string) {
	t.Helper()
	got, err := wire.Marshal(v)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	if diff := cmp.Diff(flat(golden), string(got)); diff != "" {
		t.Errorf("%s (-want +got):\n%s", name, diff)
	}
	var back T
	if err := json.Unmarshal(got, &back); err != nil {
		t.Fatalf("%s: reading back: %v", name, err)
	}
	if diff := cmp.Diff(v, back); diff != "" {
		t.Errorf("%s changed on the way (-sent +received):\n%s", name, diff)
	}
}

func TestResponsesHaveOpenAIsShape(t *testing.T) {
	usage := Usage{PromptTokens: 10, CompletionTokens: 5, TotalTokens: 15,
		PromptTokensDetails:     &PromptTokensDetails{CachedTokens: 8},
		CompletionTokensDetails: &CompletionTokensDetails{ReasoningTokens: 2, AcceptedPredictionTokens: 1}}
	checkGolden(t, "chat", ChatResponse{
		Head: Head{ID: "chatcmpl-1", Object: ObjectChat, Created: 1700000000, Model: "m", SystemFingerprint: "fp"},
		Choices: []ChatChoice{{
			Message: ResponseMessage{Role: RoleAssistant, Content: ptr("a < b & \"ü\""), ReasoningContent: "hm"},
			Logprobs: &ChatLogprobs{Content: []TokenLogprob{
				{Token: "a", Logprob: -0.5, Bytes: TokenBytes("a"), TopLogprobs: []TopLogprob{
					{Token: "a", Logprob: -0.5, Bytes: TokenBytes("a")},
					{Token: `\xe2`, Logprob: -9999, Bytes: TokenBytes{0xe2}}, {Token: "</s>", Logprob: -12.25},
				}}}},
			FinishReason: FinishStop,
		}, {
			Index: 1,
			Message: ResponseMessage{Role: RoleAssistant, ToolCalls: []ToolCall{
				{ID: "call_1", Type: "function", Function: FunctionCall{Name: "weather", Arguments: `{"city":"Rome"}`}},
			}},
			FinishReason: FinishToolCalls,
		}},
		Usage: usage, Sparrow: json.RawMessage(`{"plans":[]}`),
	},
		`{"id":"chatcmpl-1","object":"chat.completion","created":1700000000,"model":"m","system_fingerprint":"fp","choices":[
		{"index":0,"message":{"role":"assistant","content":"a < b & \"ü\"","refusal":null,"reasoning_content":"hm"},
			"logprobs":{"content":[{"token":"a","logprob":-0.5,"bytes":[97],"top_logprobs":[
				{"token":"a","logprob":-0.5,"bytes":[97]},{"token":"\\xe2","logprob":-9999,"bytes":[226]},{"token":"</s>","logprob":-12.25,"bytes":null}]}],"refusal":null},
			"finish_reason":"stop"},
		{"index":1,"message":{"role":"assistant","content":null,"refusal":null,
			"tool_calls":[{"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}"}}]},
			"logprobs":null,"finish_reason":"tool_calls"}],
		"usage":{"prompt_tokens":10,"completion_tokens":5,"total_tokens":15,"prompt_tokens_details":{"cached_tokens":8},
			"completion_tokens_details":{"reasoning_tokens":2,"accepted_prediction_tokens":1,"rejected_prediction_tokens":0}},
		"sparrow":{"plans":[]}}`)

	checkGolden(t, "completion", CompletionResponse{
		Head: Head{ID: "cmpl-1", Object: ObjectCompletion, Created: 1700000000, Model: "m"},
		Choices: []CompletionChoice{{Text: "a b", FinishReason: FinishLength, Logprobs: &CompletionLogprobs{
			Tokens: []string{"a", " b"}, TokenLogprobs: []*Logprob{nil, ptr(Logprob(-1.5))},
			TopLogprobs: []RankedLogprobs{nil, {{" b", -1.5}, {"z", -2}}}, TextOffset: []int{0, 1},
		}}},
		Usage: &Usage{PromptTokens: 1, CompletionTokens: 1, TotalTokens: 2},
	}, `{"id":"cmpl-1","object":"text_completion","created":1700000000,"model":"m","choices":[
		{"index":0,"text":"a b","logprobs":{"tokens":["a"," b"],"token_logprobs":[null,-1.5],"top_logprobs":[null,{" b":-1.5,"z":-2}],"text_offset":[0,1]},
			"finish_reason":"length"}],
		"usage":{"prompt_tokens":1,"completion_tokens":1,"total_tokens":2}}`)

	checkGolden(t, "models", ModelList{Object: ObjectList,
		Data: []Model{{ID: "m", Object: ObjectModel, Created: 1, OwnedBy: "sparrow", MaxModelLen: 4096}}},
		`{"object":"list","data":[{"id":"m","object":"model","created":1,"owned_by":"sparrow","max_model_len":4096}]}`)
	checkGolden(t, "tokenize", TokenizeResponse{Count: 2, MaxModelLen: 4096, Tokens: []int32{5, 6}},
		`{"count":2,"max_model_len":4096,"tokens":[5,6],"token_strs":null}`)
	checkGolden(t, "tokenize with strings",
		TokenizeResponse{Count: 1, MaxModelLen: 1, Tokens: []int32{5}, TokenStrs: []string{"<a>"}},
		`{"count":1,"max_model_len":1,"tokens":[5],"token_strs":["<a>"]}`)
	checkGolden(t, "detokenize", DetokenizeResponse{Prompt: "<b>"}, `{"prompt":"<b>"}`)
}

func TestLogprobsStayNumbers(t *testing.T) {
	for value, want := range map[float64]string{
		0: "0", -0.25: "-0.25", -1e-7: "-1e-07", -9999: "-9999", -10000: "-9999", math.Inf(-1): "-9999",
		math.Inf(1): "-9999",
	} {
		if got, err := wire.Marshal(Logprob(value)); err != nil || string(got) != want {
			t.Errorf("%v: %s, %v; want %s", value, got, err, want)
		}
	}
	if got, err := wire.Marshal(Logprob(math.NaN())); err != nil || string(got) != "-9999" {
		t.Errorf("NaN: %s, %v", got, err)
	}
}

func TestTokensThatAreNotWholeCharacters(t *testing.T) {
	for _, test := range []struct{ token, chat, text string }{
		{"hé", "hé", "hé"}, {"", "", ""}, {"\xe2\x82", `\xe2\x82`, `bytes:\xe2\x82`},
		{"a\xff", `\x61\xff`, `bytes:\x61\xff`},
	} {
		if got := TokenText([]byte(test.token)); got != test.chat {
			t.Errorf("%q in chat: %s", test.token, got)
		}
		if got := BytesText([]byte(test.token)); got != test.text {
			t.Errorf("%q in text: %s", test.token, got)
		}
	}
	var b TokenBytes
	for _, bad := range []string{`[256]`, `[-1]`, `"YQ=="`, `[1.5]`} {
		if err := json.Unmarshal([]byte(bad), &b); err == nil {
			t.Errorf("bytes %s were read as %v", bad, b)
		}
	}
	var r RankedLogprobs
	for _, bad := range []string{`[1]`, `{"a":"b"}`, `{"a":1,"a":2}`} {
		if err := json.Unmarshal([]byte(bad), &r); err == nil {
			t.Errorf("ranked logprobs %s were read as %v", bad, r)
		}
	}
	// Two tokens may have the same text; a JSON object holds the more probable one.
	if got, _ := wire.Marshal(RankedLogprobs{{"x", -1}, {"y", -2}, {"x", -3}}); string(got) != `{"x":-1,"y":-2}` {
		t.Errorf("repeated token: %s", got)
	}
}

func TestErrorsHaveOpenAIsShape(t *testing.T) {
	for _, test := range []struct {
		err  *wire.Error
		want string
	}{
		{wire.NewError(wire.CodeModelNotFound, "model", "%q is not served; GET /v1/models lists the names", "x<y"),
			`{"error":{"message":"model: \"x<y\" is not served; GET /v1/models lists the names","type":"invalid_request_error","param":"model","code":"model_not_found"}}`},
		{wire.NewError(wire.CodeQueueFull, "", "busy"),
			`{"error":{"message":"busy","type":"rate_limit_error","param":null,"code":"rate_limit_exceeded"}}`},
		{&wire.Error{Message: "odd"}, `{"error":{"message":"odd","type":"server_error","param":null,"code":null}}`},
	} {
		got, err := wire.Marshal(NewErrorBody(test.err))
		if err != nil || string(got) != test.want {
			t.Errorf("got %s, %v\nwant %s", got, err, test.want)
		}
		if event := string(AppendError(nil, test.err)); event != "data: "+test.want+"\n\n" {
			t.Errorf("event %q", event)
		}
	}
}
