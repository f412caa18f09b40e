package server

import (
	"encoding/json"
	"net/http"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow"
	"sparrow/chat"
)

const askedOllama = `{"model":"sparrow-test","messages":[{"role":"user","content":"hello"}]`

var nanoseconds = regexp.MustCompile(`("[a-z_]*duration":)\d+`)

// stamped returns the text with times replaced by fixed words.
func stamped(text string) string {
	text = nanoseconds.ReplaceAllString(text, "${1}0")
	return strings.ReplaceAll(text, `"created_at":"2023-11-14T22:13:21Z"`, `"created_at":T`)
}

const (
	ollamaHead = `{"model":"sparrow-test","created_at":T,`
	ollamaDone = `"done":true,"done_reason":"stop","total_duration":0,"load_duration":0,"prompt_eval_count":7,` +
		`"prompt_eval_duration":0,"eval_count":9,"eval_duration":0}`
	toldCalls = `"tool_calls":[{"id":"c1","function":{"index":0,"name":"f","arguments":{"a":1}}}`
)

func TestOllamaChats(t *testing.T) {
	_, hs := start(t, newFake(playing(told()...)), Options{})
	got := post(t, hs.URL+"/api/chat", askedOllama+`,"stream":false}`)
	want := ollamaHead + `"message":{"role":"assistant","content":"I look.","thinking":"Hmm.",` + toldCalls +
		`,{"id":"c2","function":{"index":1,"name":"g","arguments":{}}}]},` + ollamaDone
	if diff := cmp.Diff(want, stamped(got.body)); got.status != 200 || diff != "" {
		t.Errorf("status %d: %s", got.status, diff)
	}
	got = post(t, hs.URL+"/api/chat", askedOllama+`}`)
	line := func(message string) string {
		return ollamaHead + `"message":{"role":"assistant",` + message + `},"done":false}`
	}
	want = strings.Join([]string{line(`"content":"","thinking":"Hm"`), line(`"content":"I","thinking":"m."`),
		line(`"content":" look."`), line(`"content":"",` + toldCalls + `]`),
		line(`"content":"","tool_calls":[{"id":"c2","function":{"index":0,"name":"g","arguments":{}}}]`),
		ollamaHead + `"message":{"role":"assistant","content":""},` + ollamaDone, ""}, "\n")
	if diff := cmp.Diff(want, stamped(got.body)); diff != "" {
		t.Error(diff)
	}
	if kind := got.header.Get("Content-Type"); kind != "application/x-ndjson" {
		t.Errorf("content type %s", kind)
	}
}

func TestOllamaGenerates(t *testing.T) {
	e := newFake(saying("Hel", "lo"))
	_, hs := start(t, e, Options{})
	for _, c := range []struct {
		name, fields string
		check        func(r sparrow.Request) bool
	}{
		{"a question", `"system":"s"`, func(r sparrow.Request) bool {
			return cmp.Diff(r.Chat.Messages, []chat.Message{{Role: chat.System, Content: "s"},
				{Role: chat.User, Content: "p"}}) == ""
		}},
		{"a raw prompt", `"raw":true`, func(r sparrow.Request) bool { return r.Chat == nil && r.Prompt == "p" }},
	} {
		got := post(t, hs.URL+"/api/generate", `{"model":"sparrow-test:latest","prompt":"p","stream":false,`+c.fields+`}`)
		if !strings.Contains(got.body, `"response":"Hello","done":true,"done_reason":"stop"`) || !c.check(e.last(t)) {
			t.Errorf("%s: status %d: %s; %+v", c.name, got.status, got.body, e.last(t))
		}
		got = post(t, hs.URL+"/api/generate", `{"model":"sparrow-test","prompt":"p",`+c.fields+`}`)
		if !strings.Contains(got.body, `"response":"Hel","done":false}`+"\n") ||
			!strings.Contains(got.body, `"response":"","done":true,`) {
			t.Errorf("%s: %s", c.name, got.body)
		}
	}
}

func TestOllamaOptions(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	got := post(t, hs.URL+"/api/chat", `{"model":"sparrow-test","keep_alive":"5m","think":"high",
		"messages":[{"role":"user","content":"q"},
			{"role":"assistant","content":"","thinking":"hm","tool_calls":[
				{"function":{"name":"f","arguments":{"a":1}}},{"function":{"name":"g","arguments":{}}}]},
			{"role":"tool","content":"of g","tool_name":"g"},{"role":"tool","content":"of f","tool_name":"f"}],
		"tools":[{"type":"function","function":{"name":"f","description":"d","parameters":{"type":"object"}}}],
		"format":{"type":"object"},
		"options":{"num_predict":9,"temperature":0.25,"top_p":0.5,"top_k":4,"min_p":0.1,"seed":7,"stop":["END"],
			"repeat_penalty":1.5,"num_ctx":8192,"num_gpu":1,"mirostat":0,"use_mmap":true}}`)
	if got.status != 200 {
		t.Fatalf("status %d: %s", got.status, got.body)
	}
	r := e.last(t)
	p := r.Sampling
	if r.MaxTokens != 9 || p.Temperature != 0.25 || p.TopP != 0.5 || p.TopK != 4 || p.MinP != 0.1 || p.Seed != 7 ||
		p.Stop[0] != "END" || p.RepetitionPenalty != 1.5 || r.Format.Kind != sparrow.FormatSchema ||
		r.Chat.Thinking == nil || !*r.Chat.Thinking || len(r.Chat.Tools) != 1 {
		t.Errorf("%+v, chat %+v", r, r.Chat)
	}
	want := []chat.Message{{Role: chat.User, Content: "q"},
		{Role: chat.Assistant, Reasoning: "hm", ToolCalls: []chat.Call{{ID: "call_1_0", Name: "f",
			Arguments: `{"a":1}`},
			{ID: "call_1_1", Name: "g", Arguments: `{}`}}},
		{Role: chat.ToolRole, ToolCallID: "call_1_1", Content: "of g"},
		{Role: chat.ToolRole, ToolCallID: "call_1_0", Content: "of f"}}
	if diff := cmp.Diff(want, r.Chat.Messages); diff != "" {
		t.Error(diff)
	}
	if got, want := got.header.Get(ignoredHeader),
		"keep_alive, options.num_ctx, options.num_gpu, options.use_mmap"; got != want {
		t.Errorf("ignored %s, want %s", got, want)
	}
	e.info.Efforts = []string{"high"}
	_, hs = start(t, e, Options{})
	post(t, hs.URL+"/api/chat", askedOllama+`,"think":"high","options":{"num_predict":-1}}`)
	if r := e.last(t); r.Chat.Effort != "high" || r.MaxTokens != 0 {
		t.Errorf("with effort levels: %+v, chat %+v", r, r.Chat)
	}
}

func TestOllamaRefuses(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	for _, c := range []struct {
		path, body string
		status     int
		says       string
	}{
		{"/api/chat", `{"model":"other","messages":[{"role":"user","content":"x"}]}`, 404, "is not served here"},
		{"/api/chat", `{"messages":[]}`, 400, "model: required"},
		{"/api/chat", `{"model":"sparrow-test","messages":[{"role":"user","content":"x","images":["aGk="]}]}`, 400,
			"messages[0].images: images are not supported"},
		{"/api/chat", `{"model":"sparrow-test","messages":[{"role":"critic","content":"x"}]}`, 400, "messages[0].role"},
		{"/api/chat", askedOllama + `,"format":"xml"}`, 400, "format:"},
		{"/api/chat", askedOllama + `,"options":{"mirostat":2}}`, 400, "options.mirostat"},
		{"/api/chat", askedOllama + `,"options":{"temperature":9}}`, 400, "options.temperature"},
		{"/api/chat", `nonsense`, 400, "malformed JSON"},
		{"/api/generate", `{"model":"sparrow-test","prompt":"x","suffix":"y"}`, 400, "suffix"},
		{"/api/generate", `{"model":"sparrow-test","prompt":"x","context":[1]}`, 400, "context"},
		{"/api/generate", `{"model":"sparrow-test","prompt":"x","template":"y"}`, 400, "template"},
		{"/api/show", `{"model":"other"}`, 404, "is not served here"},
		{"/api/embed", `{}`, 404, "this server has no"},
	} {
		got := post(t, hs.URL+c.path, c.body)
		var e struct{ Error string }
		if json.Unmarshal([]byte(got.body), &e) != nil || got.status != c.status || !strings.Contains(e.Error, c.says) {
			t.Errorf("%s %s: status %d: %s", c.path, c.body, got.status, got.body)
		}
	}
	// curl sends this content type by default, and a page of another origin can send it too.
	form := "application/x-www-form-urlencoded"
	if got := send(t, http.MethodPost, hs.URL+"/api/chat", askedOllama+`}`, "Content-Type", form); got.status != 200 {
		t.Errorf("from curl: %d %s", got.status, got.body)
	}
	if got := send(t, http.MethodPost, hs.URL+"/api/chat", askedOllama+`}`, "Content-Type", form, "Origin",
		"https://example.org"); got.status != 415 {
		t.Errorf("from a page: %d %s", got.status, got.body)
	}
}

func TestOllamaDescribesTheModel(t *testing.T) {
	e := newFake(saying("x"))
	e.info.Memory.Weights = 123
	_, hs := start(t, e, Options{})
	for path, wants := range map[string][]string{
		"/api/tags":    {`{"models":[{"name":"sparrow-test","model":"sparrow-test"`, `"size":123`, `"digest":"`},
		"/api/ps":      {`"context_length":4096`, `"expires_at":"2123-11-14T22:13:21Z"`, `"size_vram":0`},
		"/api/version": {`{"version":"0.`},
		"/":            {"Sparrow is running"},
	} {
		got := get(t, hs.URL+path)
		for _, want := range wants {
			if got.status != 200 || !strings.Contains(got.body, want) {
				t.Errorf("%s: status %d: %s", path, got.status, got.body)
			}
		}
	}
	if got := send(t, http.MethodHead, hs.URL+"/", ""); got.status != 200 || got.body != "" {
		t.Errorf("HEAD /: %d %s", got.status, got.body)
	}
	got := post(t, hs.URL+"/api/show", `{"model":"sparrow-test"}`)
	for _, want := range []string{`"capabilities":["completion"]`, `"deepseek_v32.context_length":4096`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("show: %s", got.body)
		}
	}
	chats := newFake(saying("x"))
	chats.info.Memory.Weights, chats.info.Kernels, chats.info.ChatFormat = 123, "cuda-portable", "deepseek-v3.2"
	_, gpu := start(t, chats, Options{})
	if got := get(t, gpu.URL+"/api/ps"); !strings.Contains(got.body, `"size_vram":123`) {
		t.Errorf("on a GPU: %s", got.body)
	}
	got = post(t, gpu.URL+"/api/show", `{"model":"sparrow-test"}`)
	for _, want := range []string{`"capabilities":["completion","tools","thinking"]`, `"template":"deepseek-v3.2"`} {
		if !strings.Contains(got.body, want) {
			t.Errorf("show of a model that chats: %s", got.body)
		}
	}
	for path, body := range map[string]string{"/api/chat": `{"model":"sparrow-test","messages":[]}`,
		"/api/generate": `{"model":"sparrow-test"}`} {
		if got := post(t, hs.URL+path, body); got.status != 200 || !strings.Contains(got.body, `"done_reason":"load"`) {
			t.Errorf("%s: nothing asked: %s", path, got.body)
		}
	}
}

func TestAnOllamaStreamThatFails(t *testing.T) {
	events := append(say("Hel")[:1], sparrow.Event{Finish: sparrow.FinishError, Usage: usage(1)})
	_, hs := start(t, newFake(playing(events...)), Options{})
	lines := strings.Split(strings.TrimSpace(post(t, hs.URL+"/api/chat", askedOllama+`}`).body), "\n")
	if last := lines[len(lines)-1]; len(lines) != 2 || !strings.HasPrefix(last, `{"error":"`) {
		t.Errorf("%q", lines)
	}
}
