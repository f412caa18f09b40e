package main

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"

	"sparrow/internal/sim/fleet"
)

// realServer answers completions for one bearer key, one step for each token.
func realServer(t *testing.T) string {
	var steps atomic.Int64
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Header.Get("Authorization") != "Bearer secret" {
			w.WriteHeader(http.StatusUnauthorized)
			return
		}
		switch r.URL.Path {
		case "/server_info":
			fmt.Fprint(w, `{"served_model_name": "m", "page_size": 4, "max_total_num_tokens": 2048, "context_length": 1024,
				"max_prefill_tokens": 128, "max_running_requests": 8, "max_queued_requests": 64}`)
		case "/metrics":
			fmt.Fprintf(w, "sparrow_steps_total %d\n", steps.Load())
		default:
			var q struct {
				Prompt    []int32
				MaxTokens int `json:"max_tokens"`
			}
			if err := json.NewDecoder(r.Body).Decode(&q); err != nil {
				w.WriteHeader(http.StatusBadRequest)
				return
			}
			steps.Add(int64(q.MaxTokens))
			for range q.MaxTokens {
				fmt.Fprint(w, "data: {\"choices\":[{\"text\":\"x\",\"logprobs\":{\"tokens\":[\"token_id:7\"]}}]}\n\n")
			}
			fmt.Fprintf(w, "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":%d,\"completion_tokens\":%d,"+
				"\"prompt_tokens_details\":{\"cached_tokens\":2}}}\n\ndata: [DONE]\n\n", len(q.Prompt), q.MaxTokens)
		}
	}))
	t.Cleanup(s.Close)
	return s.URL
}

// The costs of real servers are printed as flags that a simulation accepts, and a trace can be replayed against them.
func TestRealServers(t *testing.T) {
	one, two := realServer(t), realServer(t)
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	const turns = `{"session":"a","system":"s","system_tokens":9,"new_tokens":3,"output_tokens":4}
{"session":"a","new_tokens":2,"output_tokens":1}
`
	if err := os.WriteFile(trace, []byte(turns), 0o644); err != nil {
		t.Fatal(err)
	}
	status, stdout, stderr := invoke("costs", "--server", one, "--server", two, "--key", "secret", "--prompt-tokens",
		"100")
	want := regexp.MustCompile(`^--cost-pass \S+ --cost-row \S+ --cost-decode \S+ --cost-keys \S+ --replicas 2 ` +
		`--capacity [012]\.\d\d --step-tokens 128 --max-running 8 --max-queue 64 --cache-tokens 2048 --context 1024\n$`)
	if status != 0 || !want.MatchString(stdout) {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	if status, _, stderr := invoke(append(strings.Fields(stdout), "--trace", trace)...); status != 0 {
		t.Errorf("a simulation with the costs: status %d, %s", status, stderr)
	}
	status, stdout, stderr = invoke("replay", "--server", one, "--server", two, "--key", "secret", "--trace", trace,
		"--policy", "round-robin", "--json")
	var r fleet.Report
	err := json.Unmarshal([]byte(stdout), &r)
	for i := range r.Replicas {
		r.Replicas[i].Busy = 0
	}
	if status != 0 || err != nil || r.Requests != 2 || r.PromptTokens != 12+18 || r.OutputTokens != 5 ||
		r.CachedTokens != 4 || fmt.Sprint(r.Replicas) != "[{1 4 12 2 0 0s} {1 1 18 2 0 0s}]" {
		t.Errorf("status %d, %v, %s%s", status, err, stdout, stderr)
	}
	status, stdout, stderr = invoke("replay", "--server", one, "--key", "secret", "--trace", trace)
	if status != 0 || !strings.HasPrefix(stdout, "2 requests in ") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
	for _, c := range []struct{ args, want string }{
		{"replay --trace " + trace + " --server " + one, "simulate replay: fleet: replay: "},
		{"replay --trace nowhere --server " + one, "simulate replay: stat nowhere"},
		{"replay --policy best", `simulate replay: policy "best": want one of`},
		{"costs --server " + one + " --key wrong", "401"},
	} {
		if status, _, stderr := invoke(strings.Fields(c.args)...); status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s; want %q", c.args, status, stderr, c.want)
		}
	}
}
