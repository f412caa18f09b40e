package fleet

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"
)

// server answers completions with the ids of tokens, and remembers how long its prompts were.
type server struct {
	mu      sync.Mutex
	prompts []int
	status  int
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	var q struct {
		Prompt    []int32
		MaxTokens int `json:"max_tokens"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || s.status != 0 {
		w.WriteHeader(max(s.status, 400))
		return
	}
	s.mu.Lock()
	s.prompts = append(s.prompts, len(q.Prompt))
	s.mu.Unlock()
	for i := range q.MaxTokens {
		fmt.Fprintf(w, "data: {\"choices\":[{\"text\":\"x\",\"logprobs\":{\"tokens\":[\"token_id:%d\"]}}]}\n\n", 20+i)
	}
	fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"+
		"\"prompt_tokens_details\":{\"cached_tokens\":5}}}\n\ndata: [DONE]\n\n", len(q.Prompt), q.MaxTokens)
}

// Every turn goes to a server with all that was said before it, answers included.
func TestReplay(t *testing.T) {
	own := [2]server{}
	s := Servers{Policy: RoundRobin, PageTokens: 4, Pages: 10}
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

// Fit finds the costs that made the times.
func TestFit(t *testing.T) {
	want := small(Prefix).Cost
	want.Keys = 0
	var list []Pass
	for i := range 40 {
		p := Pass{Prompt: i % 3 * 50, Decode: i % 7}
		p.Took = want.Pass + time.Duration(p.Prompt)*want.Row + time.Duration(p.Decode)*want.Decode
		list = append(list, p)
	}
	got, err := Fit(list)
	near := func(a, b time.Duration) bool { return (a - b).Abs() < b/1000 }
	if err != nil || !near(got.Pass, want.Pass) || !near(got.Row, want.Row) || !near(got.Decode, want.Decode) {
		t.Errorf("%+v, %v; want %+v", got, err, want)
	}
	if _, err := Fit(list[:1]); err == nil {
		t.Error("one pass determined all costs")
	}
}
