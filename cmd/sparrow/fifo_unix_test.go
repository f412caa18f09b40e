//go:build unix

package main

import (
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"sparrow/internal/process"
	"sparrow/internal/testkit/await"
)

// pagesBelow returns the paths of the page files of a disk cache.
func pagesBelow(t *testing.T, dir string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "*.page"))
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// makeFIFOs replaces each of the files by a FIFO with the same name.
func makeFIFOs(t *testing.T, files []string) {
	t.Helper()
	for _, f := range files {
		if err := os.Remove(f); err != nil {
			t.Fatal(err)
		}
		if err := syscall.Mkfifo(f, 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

// A FIFO in place of a page file blocks neither requests nor the process, on a running server and on one that starts:
// the server computes the prompts again, and the process ends normally.
func TestAFIFOBelowTheDiskCache(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	dir := t.TempDir()
	serve := func() *process.Server {
		s, err := thisProgram(t).Serve(t.Context(), "fifo", "--log-level", "error", "--deterministic", "--draft", "off",
			"--cache-tokens", "512", "--tier-wait", "1h", "--disk-cache", dir, "--disk-cache-size", "1G")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(s.Kill)
		return s
	}
	text := strings.Repeat("A garden is 21 meters long. ", 30)
	ask := func(s *process.Server, i int) string {
		answer, err := fireAnswer(t.Context(), http.DefaultClient, s.URL, fmt.Sprintf(
			`{"model":"sparrow-tiny","prompt":"%d %s","max_tokens":8,"temperature":0,"logprobs":1}`, i, text))
		if err != nil {
			t.Fatal(err)
		}
		return answer
	}
	s := serve()
	first := ask(s, 1)
	ask(s, 2) // evicts the pages of the first prompt
	await.True(t, "pages are written", func() bool { return len(pagesBelow(t, dir)) >= 6 })
	fifos := pagesBelow(t, dir)
	makeFIFOs(t, fifos)
	if again := ask(s, 1); again != first {
		t.Errorf("beside FIFOs the answer is %s, want %s", again, first)
	}
	m, err := s.Metrics(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if m[`sparrow_tier_pages_total{event="damaged",tier="disk"}`] == 0 {
		t.Error("no FIFO was opened: this shows nothing")
	}
	if err := s.End(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	makeFIFOs(t, pagesBelow(t, dir))
	s = serve()
	if again := ask(s, 1); again != first {
		t.Errorf("after a start among FIFOs the answer is %s, want %s", again, first)
	}
	if err := s.End(syscall.SIGTERM); err != nil {
		t.Error(err)
	}
}
