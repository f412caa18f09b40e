package server

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/api/openai"
	"sparrow/chat"
	"sparrow/internal/wire"
	"sparrow/sample"
)

var testOrigin = origin{id: "t1", tenant: "acme", seed: 42}

// plainChat returns the engine's request for a chat of one message, after change has adjusted it.
func plainChat(change func(*sparrow.Request)) sparrow.Request {
	p := sample.Default()
	p.Seed = 42
	r := sparrow.Request{
		Sampling: p, Tenant: "acme", ID: "t1",
		Chat: &chat.Request{Messages: []chat.Message{{Role: chat.User, Content: "hi"}}, AddGenerationPrompt: true},
	}
	change(&r)
	return r
}

func TestChatRequestsMapToEngineRequests(t *testing.T) {
	yes, no := true, false
	for _, c := range []struct {
		name, fields string
		want         func(*sparrow.Request)
	}{
		{"nothing but a message gets the defaults and the drawn seed", ``, func(r *sparrow.Request) {}},
		{"every sampling field",
			`"temperature":0.5,"top_p":0.9,"top_k":40,"min_p":0.1,"repetition_penalty":1.1,"frequency_penalty":0.2,"presence_penalty":-0.3,
			"logit_bias":{"5":-100},"seed":7,"n":3,"stop":["a","b"],"stop_token_ids":[9],"include_stop_str_in_output":true`,
			func(r *sparrow.Request) {
				r.Sampling = sample.Params{
					Temperature: 0.5, TopP: 0.9, TopK: 40, MinP: 0.1, RepetitionPenalty: 1.1, FrequencyPenalty: 0.2,
					PresencePenalty: -0.3, LogitBias: map[int32]float64{5: -100}, Seed: 7, N: 3,
					Stop: []string{"a", "b"}, StopTokenIDs: []int32{9}, IncludeStop: true,
				}
			}},
		{"zero is a value and not a default", `"temperature":0,"seed":0,"top_k":0`, func(r *sparrow.Request) {
			r.Sampling.Temperature, r.Sampling.Seed = 0, 0
		}},
		{"limits under the older name", `"max_tokens":5,"min_tokens":2,"ignore_eos":true`, func(r *sparrow.Request) {
			r.MaxTokens, r.MinTokens, r.IgnoreEOS = 5, 2, true
		}},
		{"limits under the newer name", `"max_completion_tokens":6`, func(r *sparrow.Request) { r.MaxTokens = 6 }},
		{"logprobs with alternatives", `"logprobs":true,"top_logprobs":4`, func(r *sparrow.Request) {
			r.Sampling.Logprobs, r.Sampling.TopLogprobs = true, 4
		}},
		{"a salt separates inside a tenant", `"cache_salt":"s"`, func(r *sparrow.Request) { r.Salt = "s" }},
		{"a trace", `"sparrow":{"trace":true}`, func(r *sparrow.Request) { r.Trace = true }},
		{"JSON mode", `"response_format":{"type":"json_object"}`, func(r *sparrow.Request) {
			r.Format.Kind = sparrow.FormatJSON
		}},
		{"a pattern", `"guided_regex":"a+"`, func(r *sparrow.Request) {
			r.Format = sparrow.Format{Kind: sparrow.FormatPattern, Pattern: "a+", Field: "guided_regex"}
		}},
		{"choices", `"response_format":{"type":"choice","choice":["a","b"]}`, func(r *sparrow.Request) {
			r.Format = sparrow.Format{Kind: sparrow.FormatChoice, Choices: []string{"a", "b"},
				Field: "response_format.choice"}
		}},
		{"a strict schema",
			`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{},"strict":true}}`,
			func(r *sparrow.Request) {
				r.Format = sparrow.Format{Kind: sparrow.FormatSchema, Schema: []byte(`{}`), Strict: true}
				r.Chat.ResponseFormat = json.RawMessage(`{}`)
			}},
		{"plain text is no constraint", `"response_format":{"type":"text"}`, func(r *sparrow.Request) {}},
		{"a schema constrains and is shown to the model",
			`"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{"type":"object"}}}`,
			func(r *sparrow.Request) {
				r.Format = sparrow.Format{Kind: sparrow.FormatSchema, Schema: []byte(`{"type":"object"}`)}
				r.Chat.ResponseFormat = json.RawMessage(`{"type":"object"}`)
			}},
		{"tools",
			`"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"},"strict":true}}],"tool_choice":"required"`,
			func(r *sparrow.Request) {
				r.Chat.Tools = []chat.Tool{{Name: "f", Description: "d",
					Parameters: json.RawMessage(`{"type":"object"}`), Strict: true}}
				r.Chat.ToolChoice = chat.ToolChoice{Mode: chat.ChoiceRequired}
			}},
		{"a named tool",
			`"tools":[{"type":"function","function":{"name":"f"}}],"tool_choice":{"type":"function","function":{"name":"f"}}`,
			func(r *sparrow.Request) {
				r.Chat.Tools = []chat.Tool{{Name: "f"}}
				r.Chat.ToolChoice = chat.ToolChoice{Mode: chat.ChoiceFunction, Name: "f"}
			}},
		{"no tools", `"tool_choice":"none"`, func(r *sparrow.Request) { r.Chat.ToolChoice.Mode = chat.ChoiceNone }},
		{"tools as the model likes", `"tool_choice":"auto"`, func(r *sparrow.Request) {}},
		{"thinking by the service's switch", `"thinking":{"type":"enabled"}`, func(r *sparrow.Request) {
			r.Chat.Thinking = &yes
		}},
		{"thinking by a template argument, which is not passed on twice",
			`"chat_template_kwargs":{"enable_thinking":false}`, func(r *sparrow.Request) { r.Chat.Thinking = &no }},
		{"other template arguments are passed on", `"chat_template_kwargs":{"thinking":true,"x":1}`,
			func(r *sparrow.Request) {
				r.Chat.Thinking, r.Chat.Kwargs = &yes, map[string]json.RawMessage{"x": json.RawMessage("1")}
			}},
		{"effort", `"reasoning_effort":"high"`, func(r *sparrow.Request) { r.Chat.Effort = "high" }},
		{"no effort is no thinking", `"reasoning_effort":"none"`, func(r *sparrow.Request) { r.Chat.Thinking = &no }},
		{"without a generation prompt", `"add_generation_prompt":false`, func(r *sparrow.Request) {
			r.Chat.AddGenerationPrompt = false
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			body := `{"model":"m","messages":[{"role":"user","content":"hi"}]`
			if c.fields != "" {
				body += "," + c.fields
			}
			req, bad := openai.DecodeChat(&wire.Decoder{Strict: true}, []byte(body+"}"))
			if bad != nil {
				t.Fatal(bad)
			}
			if diff := cmp.Diff(plainChat(c.want), chatRequest(req, testOrigin)); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestMessagesKeepTheirParts(t *testing.T) {
	req, bad := openai.DecodeChat(&wire.Decoder{Strict: true}, []byte(`{"model":"m","continue_final_message":true,"messages":[
		{"role":"system","content":"s"},
		{"role":"user","content":[{"type":"text","text":"a"},{"type":"text","text":"b"}],"name":"ann"},
		{"role":"assistant","content":null,"reasoning_content":"hm","tool_calls":[{"id":"c1","type":"function","function":{"name":"f","arguments":"{}"}}]},
		{"role":"tool","content":"42","tool_call_id":"c1"},
		{"role":"assistant","content":"so"}]}`))
	if bad != nil {
		t.Fatal(bad)
	}
	got := conversation(req)
	want := &chat.Request{ContinueFinal: true, Messages: []chat.Message{
		{Role: chat.System, Content: "s"},
		{Role: chat.User, Content: "a\nb", Name: "ann"},
		{Role: chat.Assistant, Reasoning: "hm", ToolCalls: []chat.Call{{ID: "c1", Name: "f", Arguments: "{}"}}},
		{Role: chat.ToolRole, Content: "42", ToolCallID: "c1"},
		{Role: chat.Assistant, Content: "so"},
	}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("-want +got:\n%s", diff)
	}
}

func TestCompletionRequestsMapToOneEngineRequestAPrompt(t *testing.T) {
	plain := func(change func(i int, r *sparrow.Request), n int) []sparrow.Request {
		var list []sparrow.Request
		for i := range n {
			p := sample.Default()
			p.Seed = int64(42 + i)
			r := sparrow.Request{Sampling: p, Tenant: "acme", ID: fmt.Sprint("t", i),
				MaxTokens: openai.DefaultCompletionTokens}
			change(i, &r)
			list = append(list, r)
		}
		return list
	}
	for _, c := range []struct {
		name, fields string
		want         []sparrow.Request
	}{
		{"a text", `"prompt":"hi"`, plain(func(_ int, r *sparrow.Request) { r.Prompt = "hi" }, 1)},
		{"several texts", `"prompt":["a","b"]`,
			plain(func(i int, r *sparrow.Request) { r.Prompt = string(rune('a' + i)) }, 2)},
		{"token ids", `"prompt":[1,2]`, plain(func(_ int, r *sparrow.Request) { r.Tokens = []int32{1, 2} }, 1)},
		{"several lists of ids", `"prompt":[[1],[2]]`,
			plain(func(i int, r *sparrow.Request) { r.Tokens = []int32{int32(1 + i)} }, 2)},
		{"no alternatives are still logprobs", `"prompt":"hi","logprobs":0,"max_tokens":3`,
			plain(func(_ int, r *sparrow.Request) {
				r.Prompt, r.Sampling.Logprobs, r.MaxTokens = "hi", true, 3
			}, 1)},
		{"alternatives", `"prompt":"hi","logprobs":5`, plain(func(_ int, r *sparrow.Request) {
			r.Prompt, r.Sampling.Logprobs, r.Sampling.TopLogprobs = "hi", true, 5
		}, 1)},
		{"a given seed is every prompt's", `"prompt":["a","b"],"seed":1`, plain(func(i int, r *sparrow.Request) {
			r.Prompt, r.Sampling.Seed = string(rune('a'+i)), 1
		}, 2)},
	} {
		t.Run(c.name, func(t *testing.T) {
			req, bad := openai.DecodeCompletion(&wire.Decoder{Strict: true}, []byte(`{"model":"m",`+c.fields+`}`))
			if bad != nil {
				t.Fatal(bad)
			}
			got := completionRequests(req, func(i int) origin {
				return origin{id: fmt.Sprint("t", i), tenant: "acme", seed: int64(42 + i)}
			})
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got:\n%s", diff)
			}
		})
	}
}

func TestDraftsOfARequestAreBoundedByTheEngines(t *testing.T) {
	for _, c := range []struct {
		most, draft int
		says        string // part of the error, or empty if the request is accepted
	}{{0, 0, ""}, {0, 1, "drafts no tokens: no head"}, {3, 0, ""}, {3, 3, ""}, {3, 4, "at most 3 tokens at a time"}} {
		o := &openai.Options{Sparrow: &openai.Extension{Draft: &c.draft}}
		err := checkDraft(o, sparrow.Info{Drafts: c.most, NoDrafts: "no head"})
		if (err == nil) != (c.says == "") || err != nil && !strings.Contains(err.Error(), c.says) {
			t.Errorf("%d drafts of at most %d: %v", c.draft, c.most, err)
		}
	}
	if err := checkDraft(&openai.Options{}, sparrow.Info{}); err != nil {
		t.Error(err)
	}
}
