package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"sparrow"
)

// bodyPaths lists endpoints that read a JSON body and that generate text or describe something.
var bodyPaths = []string{"/v1/chat/completions", responsesPath, messagesPath, messagesPath + "/count_tokens",
	"/api/chat", "/api/generate", "/api/show", "/v1/completions", "/v1/score", "/tokenize", "/detokenize",
	"/debug/explain"}

// FuzzBody sends any body to each endpoint and checks that the response is not a server error and is JSON or a complete
// stream, and that nothing panics.
func FuzzBody(f *testing.F) {
	message := func(blocks string) string {
		return `{"model":"sparrow-test","max_tokens":5,"messages":[{"role":"user","content":` + blocks + `}]`
	}
	for _, seed := range []string{
		hello + `}`, hello + `,"stream":true,"stream_options":{"include_usage":true},"n":2}`,
		hello + aTool + `,"tool_choice":"required"}`,
		hello + `,"logprobs":true,"top_logprobs":20,"sparrow":{"trace":true}}`,
		hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}}`,
		hello + `,"chat_template_kwargs":{"thinking":true,"x":[1]},"reasoning_effort":"max"}`,
		hello + `,"stop":["a"],"logit_bias":{"1":-100},"seed":-9223372036854775808}`,
		`{"model":"sparrow-test","messages":[{"role":"tool","content":"x","tool_call_id":"c"}]}`, `{"model":"x"}`, `[]`,
		`{`, "\xff", `{"a":"\ud800"}`, `null`, `{"model":"sparrow-test"}`, `{"model":null,"messages":null}`,
		`{"batch":"mixed:extend:3x9+4/decode:1"}`, `{"family":"glm-5","batch":"verify:9:1","kv":"fp8"}`,
		asked + `,"stream":true,"store":false}`, asked + `,"text":{"format":{"type":"json_schema"}}}`,
		message(`"x"`) + `,"stream":true}`, message(`[]`) + `}`, message(`[{"type":"text"}]`) + `}`,
		message(`[{"type":"tool_result","tool_use_id":"a","content":[{"type":"text","text":"x","content":[[]]}]}]`) + `}`,
		message(`[{"type":"image","source":{"data":"`+strings.Repeat("A", 1000)+`"}}]`) + `}`,
		message(`[{"type":"tool_use","id":"a","name":"b","input":7}]`) + `,"system":[{"type":"thinking"}]}`,
		message(`"x"`) + `,"tools":[{"name":"a","input_schema":{}},{"name":"a","input_schema":[]}],"tool_choice":{}}`,
		message(`"x"`) + `,"thinking":{"type":"sometimes"},"output_config":{"format":{"type":"json_schema"}}}`,
		`{"model":"sparrow-test","messages":[{"role":"assistant","content":[{"type":"thinking","thinking":"x"}]}],"max_tokens":1}`,
		askedOllama + `,"format":"json","think":"max","options":{"num_predict":-2,"stop":"a","seed":1e300}}`,
		askedOllama + `,"stream":false,"options":{"temperature":-1},"tools":[{}],"keep_alive":-1}`,
		`{"model":"sparrow-test","messages":[{"role":"tool","content":"x","tool_name":"c"},{"tool_calls":[{"function":{}}]}]}`,
		`{"model":"sparrow-test:latest","prompt":"p","raw":true,"system":"s","images":[],"context":[]}`,
		`{"model":"sparrow-test","prompt":"","options":null,"format":[]}`,
		`{"model":"sparrow-test","prompt":["a","b"],"echo":true,"logprobs":3,"max_tokens":0,"suffix":"x"}`,
		`{"model":"sparrow-test","prompt":[[1,2],[300]],"n":2,"best_of":3,"prompt_logprobs":-1,"stream":true}`,
		`{"model":"sparrow-test","prompt":"a","continuations":["b","",[1]],"return_tokens_as_token_ids":true}`,
		`{"prompt":"a","add_special_tokens":false,"return_token_strs":true}`, `{"tokens":[1,-2,1e9,"x"]}`,
	} {
		for i := range bodyPaths {
			f.Add(i, []byte(seed))
		}
	}
	s, err := New(newFake(func(r sparrow.Request) ([]sparrow.Event, error) {
		if err := r.Sampling.Validate(); err != nil {
			return nil, err
		}
		var list []sparrow.Event
		for i := range r.Sampling.N {
			for _, ev := range say("a", "b") {
				ev.Choice, ev.Usage = i, nil
				list = append(list, ev)
			}
		}
		list[len(list)-1].Usage = usage(2)
		return list, nil
	}), Options{MaxBodyBytes: 1 << 16})
	if err != nil {
		f.Fatal(err)
	}
	f.Fuzz(func(t *testing.T, path int, body []byte) {
		to := bodyPaths[uint(path)%uint(len(bodyPaths))]
		r := httptest.NewRequest(http.MethodPost, to, strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		switch {
		case w.Code >= 500:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		case w.Header().Get("Content-Type") == "text/event-stream":
			ends := []string{"data: [DONE]\n\n", "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"}
			if body := w.Body.String(); !slices.ContainsFunc(ends, func(end string) bool {
				return strings.HasSuffix(body, end)
			}) && !strings.Contains(body, "event: response.completed\n") {
				t.Fatalf("a stream without an end: %s", body)
			}
		case w.Header().Get("Content-Type") == "application/x-ndjson":
			if !strings.Contains(w.Body.String(), `"done":true,`) {
				t.Fatalf("lines without an end: %s", w.Body)
			}
		case !json.Valid(w.Body.Bytes()):
			t.Fatalf("status %d, not JSON: %s", w.Code, w.Body)
		}
	})
}
