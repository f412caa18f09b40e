package ollama

import (
	"strings"
	"testing"
	"time"

	"sparrow/api/openai"
	"sparrow/internal/wire"
)

func TestLimitsAndFormats(t *testing.T) {
	chat := func(fields string) string {
		return `{"model":"m:latest","messages":[{"role":"user","content":"hi"}],` + fields + `}`
	}
	for _, c := range []struct {
		fields string
		ok     func(r *openai.ChatRequest) bool
	}{
		{`"options":{"num_predict":5}`,
			func(r *openai.ChatRequest) bool { return *r.MaxTokens == 5 && r.Model == "m" }},
		{`"options":{"num_predict":0}`, func(r *openai.ChatRequest) bool { return r.MaxTokens == nil }},
		{`"options":{"num_predict":-1}`, func(r *openai.ChatRequest) bool { return r.MaxTokens == nil }},
		{`"options":{"num_predict":-2}`, func(r *openai.ChatRequest) bool { return r.MaxTokens == nil }},
		{`"options":{"stop":"a"}`, func(r *openai.ChatRequest) bool { return len(r.Stop) == 1 }},
		{`"options":{"top_p":0}`, func(r *openai.ChatRequest) bool { return r.TopP == nil }},
		{`"options":null`, func(r *openai.ChatRequest) bool { return r.MaxTokens == nil && r.Stream }},
		{`"stream":false`, func(r *openai.ChatRequest) bool { return !r.Stream }},
		{`"format":""`, func(r *openai.ChatRequest) bool { return r.ResponseFormat == nil }},
		{`"format":"json"`,
			func(r *openai.ChatRequest) bool { return r.ResponseFormat.Type == openai.FormatJSONObject }},
		{`"format":{"type":"object"}`, func(r *openai.ChatRequest) bool {
			return string(r.ResponseFormat.JSONSchema.Schema) == `{"type":"object"}`
		}},
		{`"think":true`, func(r *openai.ChatRequest) bool { return r.Thinking.Type == openai.ThinkingEnabled }},
		{`"think":false`, func(r *openai.ChatRequest) bool { return r.Thinking.Type == openai.ThinkingDisabled }},
		{`"think":"Low"`, func(r *openai.ChatRequest) bool { return r.ReasoningEffort == "low" && *r.ThinkingMode() }},
		{`"think":null`, func(r *openai.ChatRequest) bool { return r.Thinking == nil }},
	} {
		r, err := DecodeChat(&wire.Decoder{Strict: true}, []byte(chat(c.fields)))
		if err != nil {
			t.Errorf("%s: %v", c.fields, err)
		} else if chat := r.AsChat(); !c.ok(chat) {
			t.Errorf("%s: %+v", c.fields, chat)
		}
	}
	for _, fields := range []string{`"options":{"num_predict":-3}`, `"options":{"temperature":"hot"}`, `"options":[]`,
		`"format":7`, `"format":"yaml"`, `"think":"hard"`, `"think":1`, `"tools":[{"type":"web"}]`, `"stream":"yes"`} {
		if _, err := DecodeChat(&wire.Decoder{}, []byte(chat(fields))); err == nil || err.Status() != 400 {
			t.Errorf("%s: %v", fields, err)
		}
	}
}

func TestResultsFindTheirCalls(t *testing.T) {
	r, err := DecodeChat(&wire.Decoder{}, []byte(`{"model":"m","messages":[{"role":"user","content":"q"},
		{"role":"assistant","tool_calls":[{"id":"x","function":{"name":"f","arguments":{}}},
			{"function":{"name":"f","arguments":{}}},{"function":{"name":"g","arguments":{}}}]},
		{"role":"tool","content":"","tool_name":"g"},{"role":"tool","content":"","tool_call_id":"x"},
		{"role":"tool","content":""},{"role":"tool","content":"","tool_name":"f"}]}`))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, m := range r.AsChat().Messages[2:] {
		got = append(got, m.ToolCallID)
	}
	if want := "call_1_2 x call_1_1 "; strings.Join(got, " ") != want {
		t.Errorf("results of %q, want %q", strings.Join(got, " "), want)
	}
}

func TestChunks(t *testing.T) {
	at := time.Unix(1700000000, 0)
	for _, c := range []struct {
		chunk Chunk
		want  string
	}{
		{Chunk{Model: "m", CreatedAt: at, Generated: true, Content: "a<b", Thinking: "t"},
			`{"model":"m","created_at":"2023-11-14T22:13:20Z","response":"a<b","thinking":"t","done":false}`},
		{Chunk{Model: "m", CreatedAt: at, Done: &Done{Reason: DoneLoad}},
			`{"model":"m","created_at":"2023-11-14T22:13:20Z","message":{"role":"assistant","content":""},` +
				`"done":true,"done_reason":"load"}`},
		{Chunk{Model: "m", CreatedAt: at, Generated: true, Done: &Done{Reason: DoneLength, Total: 5, PromptTokens: 1,
			PromptTime: 2, GeneratedTokens: 3, GeneratedTime: 4}},
			`{"model":"m","created_at":"2023-11-14T22:13:20Z","response":"","done":true,"done_reason":"length",` +
				`"total_duration":5,"load_duration":0,"prompt_eval_count":1,"prompt_eval_duration":2,"eval_count":3,` +
				`"eval_duration":4}`},
	} {
		if got, err := wire.Marshal(&c.chunk); err != nil || string(got) != c.want {
			t.Errorf("%s, %v, want %s", got, err, c.want)
		}
	}
}

func FuzzDecode(f *testing.F) {
	for _, seed := range []string{`{"model":"m","messages":[{"role":"tool"}],"options":{"stop":[""]}}`, "{", "\xff",
		`{"model":"m","prompt":"p","raw":true,"context":[1],"images":[""]}`, `{"messages":[{"tool_calls":[{}]}]}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		for _, decode := range []func(*wire.Decoder, []byte) (*Request, *wire.Error){DecodeChat, DecodeGenerate} {
			r, err := decode(&wire.Decoder{}, body)
			if err == nil {
				r.AsChat()
				r.AsCompletion()
			} else if err.Status() != 400 || err.Message == "" {
				t.Errorf("%d %s", err.Status(), err)
			}
		}
	})
}
