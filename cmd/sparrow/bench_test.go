package main

import (
	"encoding/json"
	"strings"
	"testing"

	"sparrow/internal/bench/load"
)

func TestBenchServeMeasuresTheBuiltInModel(t *testing.T) {
	out, _ := mustDrive(t, "", "bench", "serve", "--requests", "12", "--concurrency", "4", "--prompt-tokens",
		"uniform:20-40", "--output-tokens", "6", "--shared-prefix", "128", "--groups", "2", "--cache-tokens", "8192",
		"--json")
	var r load.Report
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if r.Answered != 12 || len(r.Errors) != 0 || r.OutputTokens != 12*6 {
		t.Fatalf("report %+v", r)
	}
	// The first request of each group computes the prefix; requests that start after it is stored reuse two of its
	// pages.
	if r.CachedTokens == 0 || r.CachedTokens%64 != 0 || r.CachedShare <= 0 || r.CachedShare >= 1 {
		t.Errorf("%d of %d prompt tokens came from the cache", r.CachedTokens, r.PromptTokens)
	}
	if r.FirstToken.P50 <= 0 || r.FirstToken.P99 < r.FirstToken.P50 || r.PerToken.Count != 12 ||
		r.OutputPerSecond <= 0 {
		t.Errorf("times %+v", r)
	}
}

func TestBenchServeMeasuresAServerByURL(t *testing.T) {
	s := startServer(t)
	_, rest, _ := strings.Cut(s.out.String(), "address  ")
	url := strings.Fields(rest)[0]
	out, _ := mustDrive(t, "", "bench", "serve", "--url", url, "--requests", "4", "--rate", "100", "--prompt-tokens",
		"10", "--output-tokens", "3")
	for _, part := range []string{"4 of 4 requests answered", "first token", "errors: none"} {
		if !strings.Contains(out, part) {
			t.Errorf("the report lacks %q:\n%s", part, out)
		}
	}
	// With the name of a model that is not served every request fails, and both the report and the exit status show the
	// failures.
	out, _, err := drive("", "bench", "serve", "--url", url, "--name", "other", "--requests", "2", "--json")
	var r load.Report
	if e := json.Unmarshal([]byte(out), &r); e != nil || err != errReported || r.Errors["404"] != 2 {
		t.Errorf("an unknown model: %v, %v, %s", err, e, out)
	}
	s.end(t)
}

// A sweep over several loads prints one report for each load, and sends different prompts for each load.
func TestBenchServeSweeps(t *testing.T) {
	args := []string{"bench", "serve", "--workload", "chat", "--turns", "2", "--shared-prefix", "20", "--prompt-tokens",
		"10", "--output-tokens", "4", "--requests", "2", "--concurrency", "1,2", "--goal", "e2e=1h",
		"--cache-tokens", "8192"}
	out, _ := mustDrive(t, "", append(args, "--json")...)
	var list []load.Report
	if err := json.Unmarshal([]byte(out), &list); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	if len(list) != 2 {
		t.Fatalf("%d reports", len(list))
	}
	for i, r := range list {
		if r.Concurrency != i+1 || r.Answered != 4 || r.Good != 4 || r.Goals != "e2e=1h0m0s" || r.OutputTokens != 16 {
			t.Errorf("load %d: %+v", i, r)
		}
	}
	out, _ = mustDrive(t, "", args...)
	for _, part := range []string{"1 in flight", "2 in flight", "4 of 4", "goodput"} {
		if !strings.Contains(out, part) {
			t.Errorf("the table lacks %q:\n%s", part, out)
		}
	}
}

func TestBenchServeFailsWithAReason(t *testing.T) {
	for _, c := range []struct {
		want string
		args []string
	}{
		{"--allow-remote", []string{"--url", "http://192.0.2.1"}},
		{"--model cannot change the server at --url", []string{"--url", "http://127.0.0.1:1", "--model", "x"}},
		{"--prompt-tokens", []string{"--prompt-tokens", "many"}},
		{"--output-tokens", []string{"--output-tokens", "0"}},
		{"cannot be combined", []string{"--rate", "1", "--concurrency", "1"}},
		{"want chat, long-prefix, random", []string{"--workload", "chats"}},
		{"--goal", []string{"--goal", "fast"}},
		{"--turns", []string{"--turns", "none"}},
		{"70 streams and 1 request exceed --max-running 64; give --max-running 71 or fewer streams",
			[]string{"--streams", "70", "--requests", "1", "--kernels", "cpu"}},
		{"4 streams of 2 choices and 8 requests at once exceed --max-running 8; give " +
			"--max-running 16 or", []string{"--streams", "4", "--stream-choices", "2", "--max-running", "8",
			"--model", "none"}},
		{"the weights of deepseek-v3.2 take", []string{"--dummy", "--model", "deepseek-v3.2", "--kernels", "cpu"}},
		{"number of requests is 0, want at least 1", []string{"--requests", "0"}},
		{"--rate 0: want a positive number", []string{"--rate", "0"}},
		{"no server is listening at http://127.0.0.1:1", []string{"--url", "http://127.0.0.1:1"}},
		{"does not respond as expected", []string{"--url", "http://127.0.0.1:1"}},
	} {
		if _, _, err := drive("", append([]string{"bench", "serve"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
	}
}
