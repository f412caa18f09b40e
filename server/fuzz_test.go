package server

import (
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"sparrow"
)

// FuzzChatBody sends any body to the chat endpoint: never a server error, never a panic, always JSON or a stream that
// ends.
func FuzzChatBody(f *testing.F) {
	for _, seed := range []string{
		hello + `}`, hello + `,"stream":true,"stream_options":{"include_usage":true},"n":2}`,
		hello + aTool + `,"tool_choice":"required"}`,
		hello + `,"logprobs":true,"top_logprobs":20,"sparrow":{"trace":true}}`,
		hello + `,"response_format":{"type":"json_schema","json_schema":{"name":"x","schema":{}}}}`,
		hello + `,"chat_template_kwargs":{"thinking":true,"x":[1]},"reasoning_effort":"max"}`,
		hello + `,"stop":["a"],"logit_bias":{"1":-100},"seed":-9223372036854775808}`,
		`{"model":"sparrow-test","messages":[{"role":"tool","content":"x","tool_call_id":"c"}]}`, `{"model":"x"}`, `[]`,
		`{`, "\xff", `{"a":"\ud800"}`,
	} {
		f.Add([]byte(seed))
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
	f.Fuzz(func(t *testing.T, body []byte) {
		r := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(string(body)))
		r.Header.Set("Content-Type", "application/json")
		w := httptest.NewRecorder()
		s.Handler().ServeHTTP(w, r)
		switch {
		case w.Code >= 500:
			t.Fatalf("status %d: %s", w.Code, w.Body)
		case w.Header().Get("Content-Type") == "text/event-stream":
			if !strings.HasSuffix(w.Body.String(), "data: [DONE]\n\n") {
				t.Fatalf("a stream without an end: %s", w.Body)
			}
		case !json.Valid(w.Body.Bytes()):
			t.Fatalf("status %d, not JSON: %s", w.Code, w.Body)
		}
	})
}
