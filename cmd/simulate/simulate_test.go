package main

import (
	"bytes"
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/sim/fleet"
)

// invoke runs the program in this process and returns its exit status and output.
func invoke(args ...string) (status int, stdout, stderr string) {
	var out, errs bytes.Buffer
	status = run(context.Background(), args, &out, &errs)
	return status, out.String(), errs.String()
}

func TestSimulate(t *testing.T) {
	trace := filepath.Join(t.TempDir(), "trace.jsonl")
	status, stdout, stderr := invoke("trace", "--sessions", "20", "--system-tokens", "200", "--output-tokens", "20")
	if status != 0 || strings.Count(stdout, "\n") < 20 {
		t.Fatalf("status %d, %s", status, stderr)
	}
	if err := os.WriteFile(trace, []byte(stdout), 0o644); err != nil {
		t.Fatal(err)
	}
	args := []string{"--trace", trace, "--replicas", "2", "--context", "4096", "--kill", "1@3s+2s"}
	status, stdout, stderr = invoke(append(args, "--json")...)
	var r fleet.Report
	if err := json.Unmarshal([]byte(stdout), &r); status != 0 || err != nil || r.Requests < 20 || r.HitShare <= 0 ||
		len(r.Replicas) != 2 {
		t.Errorf("status %d, %v, %s%s", status, err, stdout, stderr)
	}
	if status, stdout, _ = invoke(args...); status != 0 || !strings.Contains(stdout, "tokens/s") {
		t.Errorf("status %d, %s", status, stdout)
	}
	for _, c := range []struct{ args, want string }{
		{"", "no trace was given"},
		{"--trace nowhere.jsonl", "nowhere.jsonl"},
		{"--trace " + trace + " --policy best", `policy "best": want one of`},
		{"--trace " + trace + " --replicas 0", "replicas is 0"},
		{"--trace " + trace + " --kill 5", "want number@time"},
		{"--trace " + trace + " --kill 5@1s", "replica 5"},
		{"trace --sessions 0", "want 1 to 1048576 sessions"},
		{"trace --sessions 1048577", "want 1 to 1048576 sessions"},
		{"trace --rate 0", "Rate:0 "},
		{"trace --rate NaN", "Rate:NaN "},
		{"trace --turns 0", "Turns:0 "},
		{"trace --new-tokens 0", "NewTokens:0 "},
		{"trace --output-tokens 0", "OutputTokens:0 "},
		{"trace --system-tokens -1", "SystemTokens:-1 "},
		{"trace --think -1", "Think:-1 "},
		{"costs", "no servers"},
		{"costs --server http://127.0.0.1:1 --prompt-tokens 0", "--prompt-tokens 0"},
		{"costs --server http://127.0.0.1:1", "/server_info"},
		{"replay --trace " + trace, "name at least one"},
	} {
		if status, _, stderr := invoke(strings.Fields(c.args)...); status != 1 || !strings.Contains(stderr, c.want) {
			t.Errorf("%s: status %d, %s; want %q", c.args, status, stderr, c.want)
		}
	}
}
