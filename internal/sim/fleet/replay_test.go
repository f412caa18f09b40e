package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

// server answers completions with token ids, one step for each token, and stores the lengths of its prompts.
type server struct {
	mu      sync.Mutex
	prompts []int
	steps   int
	cache   int // size of the cache in tokens; 0 means 64 tokens
	status  int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	switch r.URL.Path {
	case "/server_info":
		fmt.Fprintf(w, `{"served_model_name": "m", "page_size": 4, "max_total_num_tokens": %d, "context_length": 4096,
			"max_prefill_tokens": 128, "max_running_requests": 8, "max_queued_requests": 64}`, max(s.cache, 64))
		return
	case "/metrics":
		s.mu.Lock()
		defer s.mu.Unlock()
		fmt.Fprintf(w, "# HELP sparrow_steps_total Steps.\nsparrow_steps_total %d\n", s.steps)
		return
	}
	var q struct {
		Prompt    []int32
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || s.status != 0 {
		w.WriteHeader(max(s.status, 400))
		return
	}
	s.mu.Lock()
	s.prompts, s.steps = append(s.prompts, len(q.Prompt)), s.steps+q.MaxTokens
	s.mu.Unlock()
	for i := range q.MaxTokens {
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"logprobs\":{\"tokens\":[\"token_id:%d\"]}}]}\n\n", 20+i)
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"+
		"\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]\n\n", len(q.Prompt), q.MaxTokens)
}

// Every turn of a replayed conversation sends the whole conversation before it, including answers, to a server.
func TestReplay(t *testing.T) {
	own := [2]server{}
	s := Servers{Policy: RoundRobin}
	for i := range own {
		hs := httptest.NewServer(&own[i])
		defer hs.Close()
		s.URLs = append(s.URLs, hs.URL)
	}
	talk := []Session{{Name: "a", Turns: []Turn{
		{Session: "a", System: "s", SystemTokens: 10, NewTokens: 3, OutputTokens: 4},
		{Session: "a", NewTokens: 2, OutputTokens: 1, After: 0.001}, {Session: "a", NewTokens: 1, OutputTokens: 1}}}}
	r, err := Replay(t.Context(), s, talk)
	if err != nil {
		t.Fatal(err)
	}
	if r.Requests != 3 || r.OutputTokens != 6 || r.CachedTokens != 15 || r.Replicas[0].Requests != 2 ||
		fmt.Sprint(own[0].prompts, own[1].prompts) != "[13 21] [19]" {
		t.Errorf("%d requests, %d tokens, %d cached, prompts of %v and %v tokens", r.Requests, r.OutputTokens,
			r.CachedTokens, own[0].prompts, own[1].prompts)
	}
	own[1].status = http.StatusServiceUnavailable
	if r, err := Replay(t.Context(), s, talk); r.Requests != 1 || err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a server that refuses: %d requests, %v", r.Requests, err)
	}
	if _, err := Replay(context.Background(), Servers{}, talk); err == nil {
		t.Error("no servers were accepted")
	}
}

// Measure sends loads to one server first and then to all servers. It refuses servers that cannot be measured.
func TestMeasure(t *testing.T) {
	own := [2]server{{cache: 2048}, {cache: 2048}}
	var urls []string
	for i := range own {
		hs := httptest.NewServer(&own[i])
		defer hs.Close()
		urls = append(urls, hs.URL)
	}
	m, err := Measure(t.Context(), urls, "", 400)
	if err != nil {
		t.Fatal(err)
	}
	if m.Cost.Pass <= 0 || m.Capacity <= 0 || m.Capacity > 2 || m.Info.StepTokens != 128 || m.Info.Model != "m" {
		t.Errorf("%+v", m)
	}
	// Of nine loads, the loads with 16 concurrent requests and with 4 requests of 1,200 tokens do not fit in the cache.
	const each = 4 * (1 + 4 + 1 + 1 + 4 + 1 + 8)
	if len(own[0].prompts) != 2*each || len(own[1].prompts) != each || slices.Max(own[1].prompts) != 1600 {
		t.Errorf("%d and %d prompts, the longest %d; want %d and %d", len(own[0].prompts), len(own[1].prompts),
			slices.Max(own[1].prompts), 2*each, each)
	}
	own[1].cache = 4096
	if _, err := Measure(t.Context(), urls, "", 400); err == nil || !strings.Contains(err.Error(), "same flags") {
		t.Errorf("servers of different sizes: error %v", err)
	}
	own[0].status = http.StatusServiceUnavailable
	if _, err := Measure(t.Context(), urls[:1], "", 400); err == nil || !strings.Contains(err.Error(), "503") {
		t.Errorf("a server that refuses requests: error %v", err)
	}
}

// Fit finds the costs that produced the measured times, and no cost below 0.
func TestFit(t *testing.T) {
	want := small(Prefix).Cost
	want.Keys = 3 * time.Microsecond
	near := func(a, b time.Duration) bool { return (a - b).Abs() <= b/1000 }
	for _, decode := range []time.Duration{want.Decode, 0} {
		want.Decode = decode
		var list []Sample
		for i := range 40 {
			s := Sample{Steps: 1 + i%5, Prompt: i % 3 * 50, Decode: i % 7, Keys: i % 11 * 50000}
			s.Took = time.Duration(s.Steps)*want.Pass + time.Duration(s.Prompt)*want.Row +
				time.Duration(s.Decode)*want.Decode + time.Duration(s.Keys/1000)*want.Keys
			if decode == 0 && i%7 == 6 {
				s.Took -= time.Microsecond // this time would give a negative cost of decodes
			}
			list = append(list, s)
		}
		got, err := Fit(list)
		if err != nil || !near(got.Pass, want.Pass) || !near(got.Row, want.Row) || !near(got.Decode, want.Decode) ||
			!near(got.Keys, want.Keys) {
			t.Errorf("costs %+v, error %v; want %+v", got, err, want)
		}
		if _, err := Fit(list[:1]); err == nil {
			t.Error("one sample determined all costs")
		}
	}
}
