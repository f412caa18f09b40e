package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"strconv"
	"strings"
	"testing"
	"time"

	"sparrow"
	"sparrow/internal/testkit/await"
	"sparrow/plan"
)

// serving is a server started by the command, with its output.
type serving struct {
	out, side *watcher
	stop      context.CancelFunc
	ended     chan error
}

// startServer runs `sparrow serve` on a free port until it has printed its address.
func startServer(t *testing.T, args ...string) *serving {
	t.Helper()
	return startCommand(t, append([]string{"serve", "--port", "0", "--cache-tokens", "4096"}, args...)...)
}

// startCommand runs a command line that serves until it has printed its address.
func startCommand(t *testing.T, args ...string) *serving {
	t.Helper()
	ctx, stop := context.WithCancel(context.Background())
	ready := make(chan struct{})
	s := &serving{out: &watcher{met: "\ntry ", hit: func() { close(ready) }}, side: &watcher{}, stop: stop,
		ended: make(chan error, 1)}
	c := root()
	c.SetArgs(args)
	c.SetOut(s.out)
	c.SetErr(s.side)
	go func() { s.ended <- c.ExecuteContext(ctx) }()
	t.Cleanup(stop)
	select {
	case <-ready:
	case err := <-s.ended:
		t.Fatalf("serve ended: %v\n%s", err, s.side)
	case <-time.After(await.Hang):
		t.Fatal("serve is not ready")
	}
	return s
}

// end stops the server and waits until the command has returned.
func (s *serving) end(t *testing.T) {
	t.Helper()
	s.stop()
	if err := await.Value(t, "serve ends", s.ended); err != nil {
		t.Errorf("serve ended with %v", err)
	}
}

// curl matches the example request that the server prints.
var curl = regexp.MustCompile(
	`(?m)^try +curl (\S+) (?:-H 'Authorization: Bearer (\w+)' )?-H 'Content-Type: application/json' -d '(.*)'$`)

// paste sends the request of the printed curl command and returns the response.
func (s *serving) paste(t *testing.T, key string) (status int, body []byte) {
	t.Helper()
	m := curl.FindStringSubmatch(s.out.String())
	if m == nil {
		t.Fatalf("no curl in\n%s", s.out)
	}
	r, err := http.NewRequest(http.MethodPost, m[1], strings.NewReader(strings.ReplaceAll(m[3], `'\''`, "'")))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	if m[2] != "" {
		r.Header.Set("Authorization", "Bearer "+key)
	}
	resp, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err = io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, body
}

func TestServeAnswersThePrintedRequestAndStops(t *testing.T) {
	s := startServer(t, "--name", "bird's", "--vllm-metrics", "--log-json")
	status, body := s.paste(t, "")
	var answer struct {
		Model   string
		Choices []struct {
			Message struct{ Content string }
			Reason  string `json:"finish_reason"`
		}
	}
	if err := json.Unmarshal(body, &answer); err != nil || status != 200 || len(answer.Choices) != 1 {
		t.Fatalf("status %d, %v: %s", status, err, body)
	}
	if c := answer.Choices[0]; answer.Model != "bird's" || !strings.HasSuffix(c.Message.Content, "#### 46") ||
		c.Reason != "stop" {
		t.Errorf("answer %+v", answer)
	}
	for _, part := range []string{"model    bird's: deepseek_v32, the built-in small model", "plan     ",
		"weights 11.2 MiB", "64 pages, 4096 tokens", "largest step x context: 512 x 4096", "chat     format ",
		"address  http://127.0.0.1:", "page     http://127.0.0.1:", `"max_tokens": 256}`} {
		if !strings.Contains(s.out.String(), part) {
			t.Errorf("it does not say %q:\n%s", part, s.out)
		}
	}
	if strings.Contains(s.out.String(), "warning") {
		t.Errorf("a loopback address needs no warning:\n%s", s.out)
	}
	s.end(t)
	var line map[string]any
	first, _, _ := strings.Cut(s.side.String(), "\n")
	if err := json.Unmarshal([]byte(first), &line); err != nil {
		t.Errorf("the log is no JSON: %v in %s", err, first)
	}
}

func TestServeAsksForKeysAndWarnsWithoutThem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(file, []byte("# ours\nsecret alice\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := startServer(t, "--api-keys", file, "--log-level", "error")
	if status, body := s.paste(t, "wrong"); status != http.StatusUnauthorized {
		t.Errorf("a wrong key: %d %s", status, body)
	}
	if status, body := s.paste(t, "secret"); status != http.StatusOK {
		t.Errorf("the right key: %d %s", status, body)
	}
	s.end(t)
	if s.side.String() != "" {
		t.Errorf("at level error it logs %s", s.side)
	}

	open := startServer(t, "--host", "0.0.0.0")
	if side := open.side.String(); side != "" {
		t.Errorf("what was announced is logged as well: %s", side)
	}
	if text := open.out.String(); !strings.Contains(text, "warning  anyone who can reach this address") ||
		!strings.Contains(text, "curl http://127.0.0.1:") {
		t.Errorf("open to everybody, it says\n%s", text)
	}
	open.end(t)
}

// For a checkpoint without a draft layer, in a folder next to the working directory, serve prints the name once, and
// its line about missing drafts does not look like an error.
func TestServeDescribesACheckpointPlainly(t *testing.T) {
	t.Chdir("../../testdata/oracle")
	s := startServer(t, "--model", "./deepseek_v32-1", "--cache-tokens", "512")
	for _, want := range []string{"model    deepseek_v32-1: deepseek_v32\n",
		"drafts   none: this checkpoint has no draft layer\n"} {
		if !strings.Contains(s.out.String(), want) {
			t.Errorf("it does not say %q:\n%s", want, s.out)
		}
	}
	s.end(t)
}

// The lines printed at the start describe how ranks share attention, with the bytes of all ranks.
func TestStartLinesOfRanks(t *testing.T) {
	i := sparrow.Info{Memory: sparrow.Memory{Cache: 6 << 20}, Pages: 10, CacheTokens: 640}
	for _, c := range []struct {
		model plan.Model
		want  []string
	}{
		{plan.Model{Heads: 4}, []string{"cache 6.0 MiB: 10 pages, 640 tokens"}},
		{plan.Model{Heads: 4, Ranks: 2, Division: plan.ByRequests}, []string{
			"ranks    2 share attention by requests (dp): each rank computes all 4 heads",
			"cache 6.0 MiB (3.0 MiB on each of 2 ranks): 10 pages"}},
		{plan.Model{Heads: 3, Ranks: 2, PaddedHeads: 1, Division: plan.ByHeads}, []string{
			"by heads (tp): each rank computes 3 of 6 (1 of them padding; --attention dp pads none) and holds"}},
	} {
		i.Config.Model = c.model
		var b strings.Builder
		describe(&b, i, &deviceFlags{})
		for _, want := range c.want {
			if !strings.Contains(b.String(), want) {
				t.Errorf("%+v: %s lacks %q", c.model, &b, want)
			}
		}
		if c.model.Ranks == 0 && strings.Contains(b.String(), "ranks ") {
			t.Errorf("one device: %s", &b)
		}
	}
}

// serve prints the settings that change result bits on a CPU, and the number of threads with its origin, even if the
// number is a default. On a GPU it prints neither.
func TestSettingsAreShown(t *testing.T) {
	cores := runtime.NumCPU()
	processors := runtime.GOMAXPROCS(cores)
	defer runtime.GOMAXPROCS(processors)
	other := " (--workers gives another number)"
	for _, c := range []struct {
		f           deviceFlags
		environment string
		info        sparrow.Info
		want        string
	}{
		{deviceFlags{}, "", sparrow.Info{},
			fmt.Sprintf("device   X\nworkers  %d: one for each core of this process%s\n", cores, other)},
		{deviceFlags{workers: cores, spared: true}, "", sparrow.Info{},
			fmt.Sprintf("workers  %d: one for each core of this process%s\n", cores, other)},
		{deviceFlags{workers: cores}, "", sparrow.Info{}, fmt.Sprintf("workers  %d: --workers\n", cores)},
		{deviceFlags{}, strconv.Itoa(cores), sparrow.Info{},
			fmt.Sprintf("workers  %d: GOMAXPROCS in the environment%s\n", cores, other)},
		{deviceFlags{}, "many", sparrow.Info{}, fmt.Sprintf("workers  %d: one for each core", cores)},
		{deviceFlags{workers: cores - 1, spared: true}, "", sparrow.Info{},
			fmt.Sprintf("workers  %d: the CPU limit of the control group; the process may run on %d cores%s\n", cores-1,
				cores, other)},
		{deviceFlags{precise: true, workers: 1}, "", sparrow.Info{},
			"device   X; --precise\nworkers  1: --workers\n"},
		{deviceFlags{precise: true, workers: 1}, "", sparrow.Info{Memory: sparrow.Memory{Device: 1 << 30}},
			"device   X\ndrafts "},
		{deviceFlags{workers: 5}, "", sparrow.Info{Kernels: "ref"},
			"workers  1: reference kernels run on one thread\n"},
		{deviceFlags{workers: 5}, "", sparrow.Info{Config: plan.Config{Model: plan.Model{Ranks: 2}}},
			"workers  5, divided among 2 ranks: --workers\n"},
	} {
		if c.f.spared && c.f.workers == 0 {
			continue // a machine with one core has no smaller limit
		}
		t.Setenv("GOMAXPROCS", c.environment)
		c.info.Device = "X"
		var b strings.Builder
		describe(&b, c.info, &c.f)
		if !strings.Contains(b.String(), c.want) {
			t.Errorf("%s lacks %q", &b, c.want)
		}
	}
}

func TestServeFailsWithWhatToDo(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	port := strconv.Itoa(taken.Addr().(*net.TCPAddr).Port)
	for _, c := range []struct {
		want string
		args []string
	}{
		{"port " + port + " on 127.0.0.1 is in use; stop the program that uses it, or choose another with --port",
			[]string{"--port", port}},
		{"--port 70000", []string{"--port", "70000"}},
		{"is not an address of this machine", []string{"--host", "192.0.2.1", "--port", "0"}},
		{"--api-keys", []string{"--api-keys", "nowhere"}},
		{"--log-level", []string{"--log-level", "loud"}},
		{"not an origin", []string{"--cors", "example.org"}},
		{"Grace", []string{"--grace", "-1s"}},
		{"--max-queue -1: want 0", []string{"--max-queue", "-1"}},
		{"config.json", []string{"--port", "0", "--model", t.TempDir()}},
	} {
		if _, _, err := drive("", append([]string{"serve"}, c.args...)...); err == nil ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%v: %v, want it to say %q", c.args, err, c.want)
		}
	}
}
