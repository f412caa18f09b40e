//go:build unix

package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"sparrow/internal/testkit/await"
)

// If the environment variable asProgram is set, the test binary runs the program instead of tests.
const asProgram = "SPARROW_TEST_RUNS_THE_PROGRAM"

func TestMain(m *testing.M) {
	if os.Getenv(asProgram) != "" {
		main()
	}
	// Commands that choose a device themselves choose the CPU, on machines with a GPU too: tests compare what the
	// commands print.
	os.Setenv("CUDA_VISIBLE_DEVICES", "")
	// Listing the tensors of a release makes hundreds of megabytes of garbage. With the default setting, collecting
	// this garbage took a fifth of the time.
	debug.SetGCPercent(400)
	os.Exit(m.Run())
}

// A server keeps running when the reader of its log ends: only log lines are lost.
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
	defer cmd.Process.Kill() // only matters if the test fails; otherwise the process has already ended
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
	if err := await.Value(t, "it ends", done); err != nil && !strings.Contains(err.Error(), "exit status") {
		t.Errorf("it ended by %v", err)
	}
}

// confinement is a way to limit the memory of a process.
type confinement struct {
	name   string
	script string // a shell script that limits the shell's memory and then executes the program
	known  bool   // the program can read this limit
}

// confine returns a way to limit memory that works on this machine: a control group, if the process may create one, or
// else a system limit on private memory.
func confine(t *testing.T, bytes int64) confinement {
	t.Helper()
	// The system counts addresses that a process may write, also those whose memory it gave back: twice the bytes.
	limit := confinement{"limit of private memory", fmt.Sprintf("ulimit -d %d && exec \"$0\" \"$@\"", 2*bytes>>10),
		false}
	// version 1 of control groups; in version 2 a group with processes has no subgroups
	const mount = "/sys/fs/cgroup/memory"
	dir := fmt.Sprintf("%s/sparrow-test-%d-%d", mount, os.Getpid(), bytes)
	if err := os.Mkdir(dir, 0o755); err != nil {
		t.Logf("no control group can be made here: %v", err)
		return limit
	}
	t.Cleanup(func() { os.Remove(dir) })
	if err := os.WriteFile(dir+"/memory.limit_in_bytes", fmt.Append(nil, bytes), 0); err != nil {
		t.Logf("no control group can be bounded here: %v", err)
		return limit
	}
	return confinement{"control group", "echo $$ >" + dir + "/cgroup.procs && exec \"$0\" \"$@\"", true}
}

// 24 concurrent bodies of 8 MB do not make the server exceed a hard memory limit: the server answers or refuses each
// body and keeps running. The same holds for 24 bodies that the server accepts. Its memory stays within the sum that it
// printed at the start, and is returned afterwards.
func TestServeStaysWithinItsMemory(t *testing.T) {
	if testing.Short() {
		t.Skip("takes seconds")
	}
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("no shell to set a limit with")
	}
	for _, bytes := range []int64{300e6, 700e6} {
		c := confine(t, bytes)
		var flags []string
		switch {
		case bytes == 700e6: // enough memory for bodies of 8 MB, one after another
			flags = []string{"--cache-tokens", "4096", "--request-memory", "400M"}
		case !c.known:
			flags = []string{"--cache-tokens", "4096", "--request-memory", "80M"}
		}
		t.Run(fmt.Sprintf("%d MB, %s", bytes/1e6, c.name), func(t *testing.T) {
			t.Parallel()
			stayWithin(t, exec.Command(shell, append([]string{"-c", c.script, os.Args[0], "serve", "--port", "0",
				"--store-bytes", "8M"}, flags...)...))
		})
	}
}

func stayWithin(t *testing.T, cmd *exec.Cmd) {
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
	url, said := listeningAfter(t, read)
	go io.Copy(io.Discard, read)
	most := bytesIn(t, said, `process  at most ([0-9.]+ [KMG]iB)`)
	// one body of this size fits into the memory, two do not
	large := int(bytesIn(t, said, `requests ([0-9.]+ [KMG]iB)`) / 2 / 32)

	statuses := tokenizeAtOnce(t, url, 24, 8<<20-100)
	t.Logf("bodies of 8 MB: %v; sum %d MB", statuses, most>>20)
	statuses = tokenizeAtOnce(t, url, 24, large)
	t.Logf("bodies of %d kB: %v", large>>10, statuses)
	if statuses[http.StatusBadRequest] != 24 { // each body has more tokens than the context holds
		t.Errorf("bodies of %d bytes: statuses %v, want 400 for all", large, statuses)
	}
	r, err := http.Post(url+"/v1/completions", "application/json",
		strings.NewReader(`{"model": "sparrow-tiny", "prompt": "hello", "max_tokens": 3}`))
	if err != nil || r.StatusCode != http.StatusOK {
		t.Fatalf("after the burst: %v, %v", r, err)
	}
	r.Body.Close()

	peak, anonymous, files := residentMemory(t, cmd.Process.Pid)
	t.Logf("peak %d MB with %d MB of files, %d MB of its own now", peak>>20, files>>20, anonymous>>20)
	if peak == 0 {
		return // memory use is not known on this system
	}
	if peak > most+files {
		t.Errorf("at its peak it had %d bytes and %d of files, and said at most %d", peak, files, most)
	}
	await.True(t, "it gives memory back when idle", func() bool {
		_, anonymous, _ = residentMemory(t, cmd.Process.Pid)
		return anonymous <= 48<<20
	})
}

// tokenizeAtOnce sends n concurrent bodies of the given size to /tokenize and returns the number of responses for each
// status.
func tokenizeAtOnce(t *testing.T, url string, n, size int) map[int]int {
	t.Helper()
	var bodies []string
	for _, text := range []string{"a", "a b ", " "} {
		text = strings.Repeat(text, size/len(text))
		bodies = append(bodies, `{"prompt": "`+text+`", "return_token_strs": true}`)
	}
	var wait sync.WaitGroup
	var mu sync.Mutex
	statuses := map[int]int{}
	for i := range n {
		wait.Go(func() {
			r, err := http.Post(url+"/tokenize", "application/json", strings.NewReader(bodies[i%len(bodies)]))
			mu.Lock()
			defer mu.Unlock()
			if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
				statuses[http.StatusRequestEntityTooLarge]++ // the server refused the body before all of it was sent
				return
			}
			if err != nil {
				t.Errorf("request %d: %v", i, err)
				return
			}
			r.Body.Close()
			if statuses[r.StatusCode]++; r.StatusCode >= 500 {
				t.Errorf("request %d: %s", i, r.Status)
			}
		})
	}
	wait.Wait()
	return statuses
}

// bytesIn returns the number of bytes that the server printed at the place that the pattern matches.
func bytesIn(t *testing.T, text, pattern string) int64 {
	t.Helper()
	found := regexp.MustCompile(pattern).FindStringSubmatch(text)
	if found == nil {
		t.Fatalf("no %s in %s", pattern, text)
	}
	var n float64
	var unit string
	if _, err := fmt.Sscan(found[1], &n, &unit); err != nil {
		t.Fatal(err)
	}
	return int64(n * float64(map[string]int64{"KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}[unit]))
}

// residentMemory returns the peak memory, the anonymous memory and the file memory of a process in bytes. Unknown
// values are 0.
func residentMemory(t *testing.T, pid int) (peak, anonymous, files int64) {
	t.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	if err != nil {
		t.Logf("memory of the process: %v", err)
		return 0, 0, 0
	}
	for line := range strings.Lines(string(text)) {
		for field, to := range map[string]*int64{"VmHWM:": &peak, "RssAnon:": &anonymous, "RssFile:": &files} {
			if rest, ok := strings.CutPrefix(line, field); ok {
				fmt.Sscan(rest, to)
				*to <<= 10
			}
		}
	}
	return peak, anonymous, files
}

// listening waits until the server has printed the line with its address, and returns the address.
func listening(t *testing.T, f *os.File) string {
	t.Helper()
	at, _ := listeningAfter(t, f)
	return at
}

// listeningAfter waits like listening, and also returns everything that the server printed before.
func listeningAfter(t *testing.T, f *os.File) (url, said string) {
	t.Helper()
	address := regexp.MustCompile(`http://127\.0\.0\.1:[0-9]+`)
	lines := bufio.NewScanner(f)
	for lines.Scan() {
		said += lines.Text() + "\n"
		if at := address.FindString(lines.Text()); at != "" {
			return at, said
		}
	}
	t.Fatalf("no address was printed, but %s: %v", said, lines.Err())
	return "", ""
}
