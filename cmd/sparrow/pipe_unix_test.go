//go:build unix

package main

import (
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sparrow/internal/testkit/await"
)

// A pipe without a writer is refused wherever a file is expected, because opening the pipe would block and Ctrl-C would
// not end that.
func TestPipesAreRefusedAsFiles(t *testing.T) {
	fifo := filepath.Join(t.TempDir(), "fifo.jsonl")
	if err := syscall.Mkfifo(fifo, 0o644); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	for _, args := range [][]string{
		{"run", "--file", fifo, "hi"},
		{"run", "--json-schema", fifo, "hi"},
		{"eval", fifo},
		{"eval", filepath.Dir(fifo)},
		{"bench", "model", "--against", fifo},
		{"inspect", "--usage", fifo},
		{"serve", "--port", "0", "--api-keys", fifo},
		{"serve", "--port", "0", "--tenant-limits", fifo},
		{"serve", "--port", "0", "--expert-usage", fifo},
		{"run", "--model", fifo, "hi"},
	} {
		type result struct {
			status int
			text   string
		}
		done := make(chan result, 1)
		go func() {
			status, _, stderr := invoke(args...)
			done <- result{status, stderr}
		}()
		r := await.Value(t, strings.Join(args, " ")+" ends", done)
		if r.status != 1 || !strings.Contains(r.text, "is a pipe") {
			t.Errorf("%v: status %d, %s", args, r.status, r.text)
		}
	}
}
