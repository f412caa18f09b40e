//go:build unix

package main

import (
	"bufio"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// asProgram makes the test binary run the program instead of tests.
const asProgram = "SPARROW_TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	os.Exit(m.Run())
}

// A server goes on when what reads its log ends: only lines are lost.
func TestServeOutlivesItsLog(t *testing.T) {
	cmd := exec.Command(os.Args[0], "serve", "--port", "0", "--cache-tokens", "4096", "--log-level", "debug")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Process.Kill() // where the test fails; else it has ended
	write.Close()
	url := listening(t, read)
	read.Close()
	for i := range 5 {
		body := fmt.Sprintf(`{"model": "sparrow-tiny", "prompt": "hello", "max_tokens": %d}`, i+1)
		r, err := http.Post(url+"/v1/completions", "application/json", strings.NewReader(body))
		if err != nil {
			t.Fatalf("request %d after the log was closed: %v", i, err)
		}
		r.Body.Close()
		if r.StatusCode != http.StatusOK {
			t.Fatalf("request %d after the log was closed: %s", i, r.Status)
		}
	}
	if err := cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { done <- cmd.Wait() }()
	select {
	case err := <-done:
		if err != nil && !strings.Contains(err.Error(), "exit status") {
			t.Errorf("it ended by %v", err)
		}
	case <-time.After(20 * time.Second):
		t.Error("it did not end")
	}
}

// 24 bodies of 8 MB at once do not make the server exceed its memory, here a hard limit of 700 MB of data: each is
// answered or refused, and the server goes on.
func TestServeStaysWithinItsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell to set a limit with")
	}
	cmd := exec.Command(shell, "-c", "ulimit -d 700000 && exec \"$0\" \"$@\"", os.Args[0], "serve", "--port", "0",
		"--cache-tokens", "4096", "--request-memory", "400M")
	cmd.Env = append(os.Environ(), asProgram+"=1")
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	defer read.Close()
	cmd.Stdout, cmd.Stderr = write, write
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	write.Close()
	url := listening(t, read)
	go io.Copy(io.Discard, read)
	texts := []string{strings.Repeat("a", 8<<20-100), strings.Repeat("a b ", 2<<20-100), strings.Repeat(" ", 8<<20-100)}
	var wait sync.WaitGroup
	for i := range 24 {
		wait.Go(func() {
			body := fmt.Sprintf(`{"prompt": %q, "return_token_strs": true}`, texts[i%len(texts)])
			r, err := http.Post(url+"/tokenize", "application/json", strings.NewReader(body))
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			r.Body.Close()
			if r.StatusCode >= 500 {
				t.Errorf("request %d: %s", i, r.Status)
			}
		})
	}
	wait.Wait()
	r, err := http.Post(url+"/v1/completions", "application/json",
		strings.NewReader(`{"model": "sparrow-tiny", "prompt": "hello", "max_tokens": 3}`))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("after the burst: %v, %v", r, err)
	}
	r.Body.Close()
}

// listening waits for the line that names the address.
func listening(t *testing.T, f *os.File) string {
	t.Helper()
	address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		if at := address.FindString(lines.Text()); at != "" {
			return at
		}
	}
	t.Fatalf("no address was printed: %v", lines.Err())
	return ""
}
