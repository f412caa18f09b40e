package server

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/kv"
)

func TestPromptsAreRenderedAsTheyWouldBeComputed(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{})
	chat := post(t, hs.URL+"/v1/chat/completions/render", hello+`}`)
	tokens := post(t, hs.URL+"/tokenize", hello+`}`)
	var a struct {
		Model string  `json:"model"`
		IDs   []int32 `json:"token_ids"`
	}
	var b struct {
		Tokens []int32 `json:"tokens"`
	}
	if json.Unmarshal([]byte(chat.body), &a) != nil || json.Unmarshal([]byte(tokens.body), &b) != nil ||
		len(a.IDs) == 0 || len(a.IDs) != len(b.Tokens) || a.Model != "sparrow-test" {
		t.Errorf("status %d: %s; /tokenize says %s", chat.status, chat.body, tokens.body)
	}
	for body, want := range map[string]string{
		`{"model":"sparrow-test","prompt":["a","b"]}`: `[{"request_id":"cmpl-t1-0","model":"sparrow-test",` +
			`"token_ids":[1,97]},{"request_id":"cmpl-t1-1","model":"sparrow-test","token_ids":[1,98]}]`,
		`{"model":"sparrow-test","prompt":"a","add_special_tokens":false}`: `[{"request_id":"cmpl-t1",` +
			`"model":"sparrow-test","token_ids":[97]}]`,
		`{"model":"sparrow-test","prompt":[7,8]}`: `[{"request_id":"cmpl-t1","model":"sparrow-test",` +
			`"token_ids":[7,8]}]`,
	} {
		if got := post(t, hs.URL+"/v1/completions/render", body); got.body != want || got.status != 200 {
			t.Errorf("status %d: %s, want %s", got.status, got.body, want)
		}
	}
	for path, body := range map[string]string{
		"/v1/chat/completions/render": strings.Replace(hello+`}`, "sparrow-test", "other", 1),
		"/v1/completions/render":      `{"model":"other","prompt":"a"}`,
	} {
		if got := post(t, hs.URL+path, body); got.status != 404 {
			t.Errorf("%s for another model: status %d", path, got.status)
		}
	}
	if got := post(t, hs.URL+"/v1/completions/render", `{"model":"sparrow-test","prompt":[999]}`); got.status != 400 {
		t.Errorf("an id outside the vocabulary: status %d", got.status)
	}
	if len(e.requests) > 0 {
		t.Errorf("%d requests were generated", len(e.requests))
	}
}

func TestRoutersReadNamesAndLoads(t *testing.T) {
	e := newFake(saying("x"))
	e.info.StepTokens = 512
	e.stats = sparrow.Stats{Running: 3, Waiting: 2, KV: kv.Stats{Pages: 128, Used: 32, Free: 96, PromptTokens: 200,
		ReusedTokens: 50}}
	_, hs := start(t, e, Options{Version: "v1"})
	has := func(path string, want map[string]any) {
		t.Helper()
		var got map[string]any
		if err := json.Unmarshal([]byte(get(t, hs.URL+path).body), &got); err != nil {
			t.Fatal(err)
		}
		if list, ok := got["loads"].([]any); ok {
			at, _ := got["timestamp"].(string)
			if _, err := time.Parse(time.RFC3339, at); err != nil {
				t.Errorf("%s: the time is %v", path, got["timestamp"])
			}
			got = list[0].(map[string]any)
		}
		for k, v := range want {
			if got[k] != v {
				t.Errorf("%s: %s is %v, want %v", path, k, got[k], v)
			}
		}
	}
	for _, path := range []string{"/server_info", "/get_server_info"} {
		has(path, map[string]any{"served_model_name": "sparrow-test", "model_id": "sparrow-test", "dp_size": 1.,
			"max_total_tokens": 8192., "max_running_requests": 4., "max_prefill_tokens": 512., "version": "v1",
			"context_length": 4096., "page_size": 64.})
	}
	for _, path := range []string{"/model_info", "/get_model_info"} {
		has(path, map[string]any{"model_path": "sparrow-test", "is_generation": true, "model_type": "deepseek_v32"})
	}
	has("/v1/loads", map[string]any{"num_running_reqs": 3., "num_waiting_reqs": 2., "num_total_reqs": 5.,
		"num_used_tokens": 2048., "token_usage": .25, "cache_hit_rate": .25, "max_total_num_tokens": 8192.})
	if got := get(t, hs.URL+"/get_load"); got.body !=
		`[{"dp_rank":0,"num_reqs":5,"num_waiting_reqs":2,"num_tokens":2048}]` {
		t.Error(got.body)
	}
}

func TestOnlyAdministratorsEmptyTheCache(t *testing.T) {
	admins, err := ReadKeys(strings.NewReader("root-key"))
	if err != nil {
		t.Fatal(err)
	}
	users, err := ReadKeys(strings.NewReader("user-key acme"))
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		name   string
		o      Options
		key    string
		status int
	}{
		{"no keys for administrators", Options{}, "root-key", 403},
		{"no key", Options{AdminKeys: admins}, "", 401},
		{"a user's key", Options{AdminKeys: admins, Keys: users}, "user-key", 401},
		{"an administrator's key", Options{AdminKeys: admins, Keys: users}, "root-key", 200},
	} {
		e := newFake(saying("x"))
		_, hs := start(t, e, c.o)
		got := post(t, hs.URL+"/flush_cache", "", "Authorization", "Bearer "+c.key)
		if got.status != c.status || (e.flushed == 1) != (c.status == 200) {
			t.Errorf("%s: status %d, flushed %d times: %s", c.name, got.status, e.flushed, got.body)
		}
	}
	if err := (Options{AdminKeys: admins, Keys: admins}).Validate(); err == nil {
		t.Error("a key of users and of administrators was accepted")
	}
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{AdminKeys: admins, Keys: users})
	if got := post(t, hs.URL+"/v1/chat/completions", hello+`}`, "Authorization", "Bearer root-key"); got.status != 401 {
		t.Errorf("an administrator's key for a chat: status %d", got.status)
	}
}

func TestPrioritiesAndFlowsReachTheEngine(t *testing.T) {
	e := newFake(saying("x"))
	_, hs := start(t, e, Options{Objectives: map[string]int{"interactive": 10, "batch": -5}})
	for _, c := range []struct {
		body, objective, flow string
		priority              int
	}{
		{"", "", "", 0},
		{"", "interactive", "user-1", 10},
		{"", "batch", "", -5},
		{"", "unknown", "", 0},
		{`,"priority":3`, "interactive", "", -3}, // in vLLM the lowest number has the highest priority
		{`,"priority":-2`, "", "x", 2},
	} {
		got := post(t, hs.URL+"/v1/chat/completions", hello+c.body+`}`, "x-llm-d-inference-objective", c.objective,
			"x-llm-d-inference-fairness-id", c.flow)
		if got.status != 200 {
			t.Fatal(got.body)
		}
		r := e.last(t)
		// Without a header, the connection identifies the flow.
		if c.flow == "" && strings.HasPrefix(r.Flow, "127.0.0.1:") {
			r.Flow = ""
		}
		if r.Priority != c.priority || r.Flow != c.flow || r.Source != "127.0.0.1" {
			t.Errorf("%+v: priority %d, flow %q, from %q", c, r.Priority, r.Flow, r.Source)
		}
	}
}

func TestSourcesAreAddresses(t *testing.T) {
	for remote, want := range map[string]string{
		"10.0.0.7:4000":               "10.0.0.7",
		"[::ffff:10.0.0.7]:4000":      "10.0.0.7",
		"[::1]:4000":                  "::1",
		"[2001:db8:1:2:3:4:5:6]:4000": "2001:db8:1:2::/64",
		"[2001:db8:1:2:f:f:f:f]:4001": "2001:db8:1:2::/64", // an IPv6 client is identified by its /64 network
		"[fe80::1:2:3:4%eth0]:4000":   "fe80::/64",
		"@":                           "@",
		"":                            "",
	} {
		if got := sourceOf(remote); got != want {
			t.Errorf("%s: from %q, want %q", remote, got, want)
		}
	}
}

func TestAnUnknownPathSuggestsTheNearest(t *testing.T) {
	_, hs := start(t, newFake(saying("x")), Options{})
	for path, want := range map[string]string{
		"/v1/chat/completion": "did you mean POST /v1/chat/completions?",
		"/chat/completions":   "did you mean POST /v1/chat/completions?",
		"/v1/model":           "did you mean GET /v1/models?",
		"/nothing/like/it":    "chats are POST /v1/chat/completions",
	} {
		got := post(t, hs.URL+path, `{}`)
		if e := errorOf(t, got); got.status != 404 || !strings.Contains(e.Message, want) {
			t.Errorf("%s: status %d: %s", path, got.status, got.body)
		}
	}
	if got := post(t, hs.URL+"/api/pull", `{}`); got.status != 404 ||
		!strings.Contains(got.body, "chats are POST /api/chat,") {
		t.Errorf("/api/pull: status %d: %s", got.status, got.body)
	}
}

func TestDrawnSeedsSurviveFloat64(t *testing.T) {
	for range 64 {
		if seed := randomSeed(); seed < 0 || int64(float64(seed)) != seed || seed >= 1<<53 {
			t.Fatalf("seed %d", seed)
		}
	}
}
