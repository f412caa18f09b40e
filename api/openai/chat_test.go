package openai

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// ptr returns a pointer to v, for optional fields in tables.
func ptr[V any](v V) *V { return &v }

func TestChatRequestsThatClientsSend(t *testing.T) {
	for _, test := range []struct {
		name, body string
		want       ChatRequest
	}{
		{
			"the smallest",
			`{"model":"m","messages":[{"role":"user","content":"Hi"}]}`,
			ChatRequest{Options: Options{Model: "m"}, Messages: []Message{{Role: RoleUser, Content: Content{"Hi"}}}},
		}, {
			"null everywhere is the same as nothing",
			`{"model":"m","messages":[{"role":"user","content":"Hi","name":null,"tool_calls":null}],"temperature":null,"stop":null,"n":null,
			  "tools":null,"tool_choice":null,"response_format":null,"stream":null,"stream_options":null,"seed":null,"user":null,"sparrow":null,
			  "functions":null,"audio":null,"logit_bias":null,"chat_template_kwargs":null}`,
			ChatRequest{Options: Options{Model: "m"}, Messages: []Message{{Role: RoleUser, Content: Content{"Hi"}}}},
		}, {
			"every sampling field",
			`{"model":"m","messages":[{"role":"user","content":""}],"temperature":0,"top_p":1,"top_k":-1,"min_p":0.05,"n":2.0,
			  "frequency_penalty":-2,"presence_penalty":2,"repetition_penalty":1.1,"logit_bias":{"0":-100,"50256":5.5},"seed":-9223372036854775808,
			  "stop":"\n","stop_token_ids":[2],"include_stop_str_in_output":true,"min_tokens":1,"max_completion_tokens":1e2,"max_tokens":100,
			  "ignore_eos":true,"logprobs":true,"top_logprobs":20,"priority":-3,"cache_salt":"tenant","sparrow":{"trace":true,"draft":0}}`,
			ChatRequest{
				Options: Options{
					Model: "m", Temperature: ptr(0.0), TopP: ptr(1.0), TopK: ptr(0), MinP: ptr(0.05), N: ptr(2),
					FrequencyPenalty: ptr(-2.0), PresencePenalty: ptr(2.0), RepetitionPenalty: ptr(1.1),
					LogitBias: map[int32]float64{0: -100, 50256: 5.5}, Seed: ptr(int64(-1 << 63)),
					Stop: []string{"\n"}, StopTokenIDs: []int32{2}, IncludeStop: true, MinTokens: ptr(1),
					IgnoreEOS: true, CacheSalt: "tenant", Priority: ptr(-3),
					Sparrow: &Extension{Trace: true, Draft: ptr(0)},
				},
				Messages: []Message{{Role: RoleUser, Content: Content{""}}}, MaxTokens: ptr(100),
				MaxCompletionTokens: ptr(100), Logprobs: true, TopLogprobs: ptr(20),
			},
		}, {
			"labels that change nothing",
			`{"model":"m","messages":[{"role":"user","content":"Hi"}],"user":"u","metadata":{"a":"b"},"store":true,"service_tier":"auto",
			  "safety_identifier":"s","prompt_cache_key":"k","prompt_cache_retention":"24h","prompt_cache_options":{"ttl":"30m"},"prediction":{"type":"content","content":"x"},
			  "modalities":[ "text" ],"verbosity":"medium","use_beam_search":false,"skip_special_tokens":true}`,
			ChatRequest{Options: Options{Model: "m"}, Messages: []Message{{Role: RoleUser, Content: Content{"Hi"}}}},
		}, {
			"a stream with usage and text in parts",
			`{"model":"m","messages":[{"role":"user","content":[{"type":"text","text":"a"},{"text":"b","type":"text"}]}],"stream":true,
			  "stream_options":{"include_usage":true,"include_obfuscation":false}}`,
			ChatRequest{
				Options:  Options{Model: "m", Stream: true, StreamOptions: &StreamOptions{IncludeUsage: true}},
				Messages: []Message{{Role: RoleUser, Content: Content{"a", "b"}}},
			},
		}, {
			"a whole round of tool use, answers replayed as they came",
			`{"model":"m","messages":[
			  {"role":"system","content":"Be brief."},{"role":"developer","content":"Use tools."},{"role":"user","content":"Weather?","name":"ann"},
			  {"role":"assistant","content":null,"refusal":null,"annotations":[],"audio":null,"function_call":null,"reasoning":"look it up","parsed":{"a":1},
			   "tool_calls":[{"index":0,"id":"call_1","type":"function","function":{"name":"weather","arguments":"{\"city\":\"Rome\"}","parsed_arguments":{"city":"Rome"}}}]},
			  {"role":"tool","tool_call_id":"call_1","content":"sunny","name":"weather"}],
			 "tools":[{"type":"function","function":{"name":"weather","description":"d","strict":true,"parameters":{"type":"object","properties":{"city":{"type":"string"}}}}},
			          {"type":"function","function":{"name":"none"}}],
			 "tool_choice":{"type":"function","function":{"name":"weather"}},"parallel_tool_calls":false}`,
			ChatRequest{
				Options: Options{Model: "m"},
				Messages: []Message{
					{Role: RoleSystem, Content: Content{"Be brief."}},
					{Role: RoleDeveloper, Content: Content{"Use tools."}},
					{Role: RoleUser, Content: Content{"Weather?"}, Name: "ann"},
					{Role: RoleAssistant, ReasoningContent: "look it up", ToolCalls: []ToolCall{
						{ID: "call_1", Type: "function",
							Function: FunctionCall{Name: "weather", Arguments: `{"city":"Rome"}`}},
					}},
					{Role: RoleTool, ToolCallID: "call_1", Content: Content{"sunny"}, Name: "weather"},
				},
				Tools: []Tool{
					{Type: "function", Function: Function{Name: "weather", Description: "d", Strict: ptr(true),
						Parameters: []byte(`{"type":"object","properties":{"city":{"type":"string"}}}`)}},
					{Type: "function", Function: Function{Name: "none"}},
				},
				ToolChoice: &ToolChoice{Mode: ChoiceFunction, Name: "weather"}, ParallelToolCalls: ptr(false),
			},
		}, {
			"a schema, its names in the order sent",
			`{"model":"m","messages":[{"role":"user","content":"x"}],"tool_choice":"none","response_format":{"type":"json_schema","json_schema":
			  {"name":"answer","description":"d","strict":true,"schema":{"z":1, "a":{"é":[null]}}}}}`,
			ChatRequest{
				Options: Options{Model: "m",
					ResponseFormat: &ResponseFormat{Type: FormatJSONSchema, JSONSchema: &JSONSchema{
						Name: "answer", Description: "d", Strict: ptr(true),
						Schema: []byte(`{"z":1, "a":{"é":[null]}}`),
					}}},
				Messages: []Message{{Role: RoleUser, Content: Content{"x"}}}, ToolChoice: &ToolChoice{Mode: ChoiceNone},
			},
		}, {
			"thinking by all its switches, and a message to go on with",
			`{"model":"m","messages":[{"role":"user","content":"x"},{"role":"assistant","content":"So"}],"thinking":{"type":"enabled"},
			  "reasoning_effort":"max","chat_template_kwargs":{"thinking":true,"enable_thinking":true,"other":{"deep":[1]}},
			  "continue_final_message":true,"add_generation_prompt":false,"response_format":{"type":"json_object"}}`,
			ChatRequest{
				Options: Options{Model: "m", ResponseFormat: &ResponseFormat{Type: FormatJSONObject}},
				Messages: []Message{{Role: RoleUser, Content: Content{"x"}},
					{Role: RoleAssistant, Content: Content{"So"}}},
				Thinking: &Thinking{Type: ThinkingEnabled}, ReasoningEffort: "max",
				ChatTemplateKwargs:  rawMap("thinking", "true", "enable_thinking", "true", "other", `{"deep":[1]}`),
				AddGenerationPrompt: ptr(false), ContinueFinalMessage: true,
			},
		},
	} {
		t.Run(test.name, func(t *testing.T) {
			got, err := strictChat([]byte(test.body))
			if err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(&test.want, got); diff != "" {
				t.Errorf("decoded differently (-want +got):\n%s", diff)
			}
		})
	}
}

func TestChatRequestAnswersQuestions(t *testing.T) {
	var r ChatRequest
	if _, ok := r.NewTokens(); ok || r.Choices() != 1 || r.WantsUsage() || r.WantsTrace() ||
		!r.WantsGenerationPrompt() || r.ThinkingMode() != nil {
		t.Errorf("an empty request asks for something")
	}
	r.MaxTokens = ptr(7)
	if n, ok := r.NewTokens(); n != 7 || !ok {
		t.Errorf("max_tokens: %d, %v", n, ok)
	}
	r = ChatRequest{MaxCompletionTokens: ptr(8), ContinueFinalMessage: true, Options: Options{
		N: ptr(3), StreamOptions: &StreamOptions{IncludeUsage: true}, Sparrow: &Extension{Trace: true}}}
	if n, ok := r.NewTokens(); n != 8 || !ok || r.Choices() != 3 || !r.WantsUsage() || !r.WantsTrace() ||
		r.WantsGenerationPrompt() {
		t.Errorf("a full request: %d, %v", n, ok)
	}
	for _, test := range []struct {
		name string
		r    ChatRequest
		want bool
	}{
		{"thinking enabled", ChatRequest{Thinking: &Thinking{Type: ThinkingEnabled}}, true},
		{"thinking disabled", ChatRequest{Thinking: &Thinking{Type: ThinkingDisabled}}, false},
		{"template argument thinking", ChatRequest{ChatTemplateKwargs: rawMap("thinking", "true")}, true},
		{"template argument enable_thinking", ChatRequest{ChatTemplateKwargs: rawMap("enable_thinking", "false")},
			false},
		{"effort none", ChatRequest{ReasoningEffort: EffortNone}, false},
	} {
		if got := test.r.ThinkingMode(); got == nil || *got != test.want {
			t.Errorf("%s: %v, want %v", test.name, got, test.want)
		}
	}
	if got := (&ChatRequest{ReasoningEffort: "high"}).ThinkingMode(); got != nil {
		t.Errorf("an effort alone is not a switch, got %v", *got)
	}
	if got := (Content{"a", "b"}).Text(); got != "a\nb" {
		t.Errorf("two parts: %q", got)
	}
}

func TestEveryAcceptedFieldIsDocumented(t *testing.T) {
	inside := map[string]string{
		"messages[].annotations": chatOf(
			`{"role":"assistant","content":"x","annotations":[]}`),
		"messages[].parsed": chatOf(`{"role":"assistant","content":"x","parsed":[1]}`),
		"messages[].tool_calls[].index": chatOf(
			`{"role":"assistant","tool_calls":[{"index":0,"id":"1","type":"function","function":{"name":"f"}}]}`),
		"messages[].tool_calls[].function.parsed_arguments": chatOf(
			`{"role":"assistant","tool_calls":[{"id":"1","type":"function","function":{"name":"f","parsed_arguments":1}}]}`),
		"messages[].content[].prompt_cache_breakpoint": chatOf(
			`{"role":"user","content":[{"type":"text","text":"x","prompt_cache_breakpoint":{"mode":"explicit"}}]}`),
		"messages[].content[].cache_control": chatOf(
			`{"role":"user","content":[{"type":"text","text":"x","cache_control":{"type":"ephemeral"}}]}`),
		"stream_options.include_obfuscation": chatWith(
			`"stream":true,"stream_options":{"include_obfuscation":true}`),
	}
	notes := slices.Clone(ignoredInside)
	for _, f := range ignored {
		notes = append(notes, f.fieldNote)
	}
	for _, f := range fixed {
		notes = append(notes, f.fieldNote)
	}
	for _, f := range notes {
		if f.Name == "" || f.Why == "" {
			t.Errorf("%+v lacks a word", f)
		}
		if strings.Contains(f.Name, ".") {
			if _, err := strictChat([]byte(inside[f.Name])); err != nil {
				t.Errorf("%s is documented but not accepted: %v", f.Name, err)
			}
			continue
		}
		if _, ok := chatFields[f.Name]; !ok {
			t.Errorf("%s is documented but not accepted in chat", f.Name)
		}
		if _, ok := completionFields[f.Name]; !ok {
			t.Errorf("%s is documented but not accepted in completions", f.Name)
		}
	}
}
