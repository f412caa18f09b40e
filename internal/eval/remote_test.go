package eval

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"sparrow/plan"
	"sparrow/server"
)

// Over HTTP the built-in model gives the same answers as in the process. If a request has tools, calls are returned as
// tool calls.
func TestRemoteAgainstTheServer(t *testing.T) {
	s, err := server.New(server.Adapt(open(t, plan.Policy{})), server.Options{})
	if err != nil {
		t.Fatal(err)
	}
	h := httptest.NewServer(s.Handler())
	defer h.Close()
	r, err := NewRemote(t.Context(), RemoteConfig{URL: h.URL + "/"})
	if err != nil {
		t.Fatal(err)
	}
	rep := allRight(t, r, shippedTasks(t, "word2,json,tool,talk"), 5)
	if rep.By.Model != "sparrow-tiny" || rep.By.URL != h.URL+"/v1" || rep.Total.CompletionTokens == 0 ||
		rep.Total.PromptTokens == 0 {
		t.Errorf("%+v, %+v", rep.By, rep.Total)
	}
}

// fixed serves one response to every chat completion.
func fixed(t *testing.T, status int, body string, check func(*http.Request, map[string]any)) *httptest.Server {
	t.Helper()
	h := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if check != nil {
			var sent map[string]any
			if err := json.NewDecoder(req.Body).Decode(&sent); err != nil {
				t.Error(err)
			}
			check(req, sent)
		}
		w.WriteHeader(status)
		_, _ = w.Write([]byte(body))
	}))
	t.Cleanup(h.Close)
	return h
}

func TestRemoteReply(t *testing.T) {
	body :=
		`{"id": "x", "choices": [{"index": 0, "finish_reason": "tool_calls", "logprobs": null, "message": {"role": "assistant", "content": null, "reasoning_content": "Hm.",
		"tool_calls": [{"id": "c", "type": "function", "function": {"name": "get_user", "arguments": "{\"user_id\":5381}"}}]}}],
		"usage": {"prompt_tokens": 12, "completion_tokens": 7, "total_tokens": 19, "prompt_tokens_details": {"cached_tokens": 4}}, "service_tier": "default"}`
	it := item(t, "Hm.</think>"+callAnswer, `{"user_id": 5381}`)
	h := fixed(t, 200, body, func(req *http.Request, sent map[string]any) {
		if req.URL.Path != "/v1/chat/completions" || req.Header.Get("Authorization") != "Bearer secret" ||
			req.Header.Get("Content-Type") != "application/json" {
			t.Errorf("%s with %v", req.URL, req.Header)
		}
		kwargs, _ := sent["chat_template_kwargs"].(map[string]any)
		if sent["model"] != "m" || sent["temperature"] != 0.0 || sent["max_tokens"] != 50.0 ||
			kwargs["thinking"] != true || sent["tools"] == nil || sent["messages"] == nil {
			t.Errorf("sent %v", sent)
		}
	})
	r, err := NewRemote(t.Context(), RemoteConfig{URL: h.URL + "/v1", Model: "m", Key: "secret"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Answer(t.Context(), it, 50)
	if err != nil {
		t.Fatal(err)
	}
	if got.PromptTokens != 12 || got.CompletionTokens != 7 || got.CachedTokens != 4 || !got.Ended || got.Raw ||
		!Exact(it, &got) || !Final(it, &got) {
		t.Errorf("%+v", got)
	}
	if want := `Hm.</think>[get_user {"user_id":5381}]`; got.String() != want {
		t.Errorf("%q, want %q", got.String(), want)
	}
}

// For an item without tools or other options, the request has no field that a strict server could refuse.
func TestRemoteSendsOnlyWhatIsNeeded(t *testing.T) {
	it := &Item{Answer: "4", Messages: []byte(`[{"role": "user", "content": "2+2?"}]`)}
	h := fixed(t, 200, `{"choices": [{"finish_reason": "length", "message": {"content": "4"}}]}`,
		func(_ *http.Request, sent map[string]any) {
			if len(sent) != 4 || sent["tools"] != nil {
				t.Errorf("sent %v", sent)
			}
		})
	r, err := NewRemote(t.Context(), RemoteConfig{URL: h.URL, Model: "m"})
	if err != nil {
		t.Fatal(err)
	}
	got, err := r.Answer(t.Context(), it, 50)
	if err != nil || got.Text != "4" || got.Ended {
		t.Errorf("%+v, %v", got, err)
	}
}

func TestRemoteErrors(t *testing.T) {
	it := item(t, "4", "")
	for name, c := range map[string]struct {
		status     int
		body, want string
	}{
		"refused":    {429, `{"error": {"message": "busy"}}`, "busy"},
		"no choices": {200, `{"choices": []}`, "0 choices"},
		"not JSON":   {200, `<html>`, "not that of OpenAI's API"},
	} {
		r, err := NewRemote(t.Context(), RemoteConfig{URL: fixed(t, c.status, c.body, nil).URL, Model: "m"})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := r.Answer(t.Context(), it, 1); !errors.Is(err, ErrRemote) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v; want it to say %q", name, err, c.want)
		}
	}
	if _, err := NewRemote(t.Context(), RemoteConfig{URL: fixed(t, 200, `{"data": []}`, nil).URL}); !errors.Is(err,
		ErrRemote) {
		t.Errorf("a server without models: %v", err)
	}
	for _, c := range []RemoteConfig{{URL: ""}, {URL: "localhost:80"}, {URL: "ftp://x"}, {URL: "http://"},
		{URL: "http://x", Model: "m", Timeout: -1}} {
		if _, err := NewRemote(t.Context(), c); !errors.Is(err, ErrRemote) {
			t.Errorf("%+v: %v", c, err)
		}
	}
	release := make(chan struct{})
	slow := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { <-release }))
	defer slow.Close()
	defer close(release)
	r, err := NewRemote(t.Context(), RemoteConfig{URL: slow.URL, Model: "m", Timeout: 20 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := r.Answer(t.Context(), it, 1); !errors.Is(err, ErrRemote) {
		t.Errorf("a slow server: %v", err)
	}
}
