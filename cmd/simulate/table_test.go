package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/testkit/table"
)

// A simulation gives the same report on every machine. The table has traces, reports and help texts.
func TestTableOfSimulations(t *testing.T) {
	file := filepath.Join(t.TempDir(), "trace.jsonl")
	var lines []string
	say := func(args string) {
		t.Helper()
		status, stdout, stderr := invoke(strings.Fields(strings.ReplaceAll(args, "trace.jsonl", file))...)
		if status != 0 || stderr != "" {
			t.Fatalf("%s: status %d, %s", args, status, stderr)
		}
		lines = append(lines, "simulate "+args)
		for line := range strings.Lines(stdout) {
			lines = append(lines, "  "+strings.TrimRight(line, "\n"))
		}
	}
	say("trace --sessions 3 --seed 9 --turns 2 --think 1 --systems 2 --tenants 2")
	say("trace --sessions 2 --system-tokens 0 --new-tokens 5 --output-tokens 3 --rate 0.5")
	status, trace, stderr := invoke(strings.Fields("trace --sessions 60 --rate 8 --systems 3 --system-tokens 300 " +
		"--new-tokens 60 --output-tokens 30 --think 1 --tenants 2 --turns 4")...)
	if status != 0 {
		t.Fatal(stderr)
	}
	if err := os.WriteFile(file, []byte(trace), 0o644); err != nil {
		t.Fatal(err)
	}
	const small = " --trace trace.jsonl --cache-tokens 8192 --context 4096 --max-running 8"
	say("--replicas 3" + small)
	say("--replicas 3 --policy least-loaded" + small)
	say("--replicas 3 --policy round-robin --seed 2 --json" + small)
	say("--replicas 2 --kill 0@3s+1s --kill 1@4s --max-queue 4" + small)
	say("--replicas 2 --capacity 0.5 --step-tokens 128" + small)
	say("--trace trace.jsonl --cache-tokens 2048 --context 1024 --max-running 64 --json")
	say("--cost-pass 20ms --cost-row 50us --cost-decode 1ms --cost-keys 50us" + small)
	for _, args := range []string{"--help", "trace --help", "costs --help", "replay --help"} {
		say(args)
	}
	table.Check(t, "reports.txt", lines)
}
