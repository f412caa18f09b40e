package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/eval"
)

// Every command that is interrupted prints "interrupted" instead of the error text of a library.
func TestInterruptedCommandsSaySo(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, args := range [][]string{
		{"eval", "--tasks", "talk", "--limit", "1"},
		{"eval", "--compare", "sparse,dense", "--tasks", "talk", "--limit", "1"},
		{"bench", "model", "--contexts", "512", "--batch", "1"},
		{"bench", "serve", "--requests", "1"},
		{"bench", "kernels", "--only", "select", "--threads", "1"},
		{"run", "Goodbye"},
	} {
		var out, side bytes.Buffer
		status := run(ctx, args, &out, &side)
		if status != 130 || !strings.HasPrefix(side.String(), "sparrow: interrupted") ||
			strings.Contains(side.String(), "context canceled") {
			t.Errorf("%v: status %d, %q", args, status, side.String())
		}
	}
}

func TestInterruptedKeepsOtherErrors(t *testing.T) {
	other := errors.New("a case failed")
	got := interrupted(errors.Join(other, fmt.Errorf("deep below: %w", context.Canceled)))
	if got.Error() != "a case failed\ninterrupted" || !errors.Is(got, other) {
		t.Errorf("%v", got)
	}
	if interrupted(other) != other {
		t.Error("an error that is no interruption was changed")
	}
}

// A comparison that ends early prints the plans that finished. Plans that cannot run are refused before the first one
// runs.
func TestFinishedPlansArePrinted(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "tiny")
	if status, _, stderr := invoke("synth", dir, "--config", "v32-tiny"); status != 0 {
		t.Fatal(stderr)
	}
	status, stdout, stderr := invoke("eval", "--model", dir, "--compare", "sparse,draft=3,kv=fp8", "--tasks", "talk",
		"--limit", "1", "--max-tokens", "4")
	if status != 1 || !strings.Contains(stdout, "sparse: each token") || strings.Contains(stdout, "kv=fp8") {
		t.Errorf("status %d, output\n%s", status, stdout)
	}
	if !strings.Contains(stderr, "plan draft=3") || !strings.Contains(stderr, "1 of 3 plans finished") {
		t.Errorf("standard error %q", stderr)
	}
	for _, bad := range []string{"dense+deterministic", "kv=f16"} {
		status, stdout, stderr := invoke("eval", "--compare", "sparse,"+bad, "--tasks", "talk", "--limit", "1")
		if status != 1 || stdout != "" || !strings.Contains(stderr, "plan "+bad) {
			t.Errorf("%s: status %d, output %q, standard error %q", bad, status, stdout, stderr)
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	err := unfinished(ctx, eval.Plan{Name: "dense"}, 2, 3, errors.New("cancelled below"))
	if !errors.Is(err, errInterrupted) || err.Error() != "interrupted in plan dense; 2 of 3 plans finished" {
		t.Errorf("%v", err)
	}
}
