// Command agents tests coding agents as clients of a server whose model generates scripted replies
// (internal/sim/script). The task is to read two files, edit one, run a test, correct the edit, test again, and finish.
//
// Each agent runs once in each of several chat formats, without a terminal and without a network. Each of its streaming
// requests is repeated without streaming. Agents are installed once, with pinned versions, in the user's cache folder
// or in the folder SPARROW_CLIENTS. An agent that cannot be installed is skipped with a message. The exit status is 1
// if an agent failed. Arguments are names of agents; without any, all run.
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"sparrow"
	"sparrow/internal/pinned"
	"sparrow/internal/sim/script"
	"sparrow/server"
)

// files holds the npm package files of each agent, in one folder per agent.
//
//go:embed */package.json */package-lock.json
var files embed.FS

// Maximum times of started programs.
const (
	installTime = 10 * time.Minute
	taskTime    = 10 * time.Minute // long enough for a machine with other load
)

// contextTokens is the context length; prompts of agents have tens of thousands of tokens.
const contextTokens = 1 << 18

// formats lists the chat formats that the agents are tested with.
var formats = []string{"deepseek-v3.2", "glm-5.2", "deepseek-v4"}

// model is the name of the built-in model.
const model = "sparrow-tiny"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed, err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "agents:", err)
		os.Exit(1)
	}
	if failed > 0 {
		os.Exit(1)
	}
}

// run installs the agents one after the other and runs the task with each.
func run(ctx context.Context, only []string) (failed int, err error) {
	home, err := pinned.Cache()
	if err != nil {
		return 0, err
	}
	passed := 0
	for _, a := range agents {
		if len(only) > 0 && !slices.Contains(only, a.name) {
			continue
		}
		program, err := a.install(ctx, home)
		if err != nil {
			fmt.Printf("skipped: %s: %v\n", a.name, err)
			continue
		}
		for _, format := range formats {
			began := time.Now()
			if err := carryOut(ctx, a, program, format); err != nil {
				failed++
				fmt.Printf("FAIL  %-14s %-14s %v\n", a.name, format, err)
				continue
			}
			passed++
			fmt.Printf("ok    %-14s %-14s %.1f s\n", a.name, format, time.Since(began).Seconds())
		}
	}
	fmt.Printf("%d passed, %d failed\n", passed, failed)
	return failed, nil
}

// install installs the agent and returns the path of its program.
func (a *agent) install(ctx context.Context, home string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, installTime)
	defer cancel()
	manifest, err := files.ReadFile(a.name + "/package.json")
	if err != nil {
		return "", err
	}
	lock, err := files.ReadFile(a.name + "/package-lock.json")
	if err != nil {
		return "", err
	}
	dir, err := pinned.Node(ctx, home, "agent-"+a.name, manifest, lock)
	if err != nil {
		return "", err
	}
	program := filepath.Join(dir, "node_modules", strings.ReplaceAll(a.program, "PLATFORM", platform()))
	if _, err := os.Stat(program); err != nil {
		return "", fmt.Errorf("the agent's program for this machine is missing: %w", err)
	}
	return program, nil
}

// carryOut runs an agent on the task with one chat format, and checks the result.
func carryOut(ctx context.Context, a *agent, program, format string) (err error) {
	work, err := os.MkdirTemp("", "sparrow-agent-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	repository, err := scratch(ctx, work)
	if err != nil {
		return err
	}
	e, err := script.Open(ctx, sparrow.Config{ChatFormat: format}, contextTokens, a.reply(repository))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, e.Close(context.WithoutCancel(ctx))) }()
	s, err := serve(ctx, e, a.reply(repository))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, s.close()) }()

	ctx, cancel := context.WithTimeout(ctx, taskTime)
	defer cancel()
	args, env, err := a.setup(work, s.url)
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, program, args...)
	cmd.Dir, cmd.Env, cmd.WaitDelay = repository, append(environment(work), env...), time.Second
	out, err := cmd.CombinedOutput()
	if err != nil {
		return fmt.Errorf("%w, requests %v; it printed %s", err, s.seen(), tail(out))
	}
	if err := solved(repository); err != nil {
		return fmt.Errorf("%w, requests %v; it printed %s", err, s.seen(), tail(out))
	}
	if !strings.Contains(string(out), finished) {
		return fmt.Errorf("it did not print %q but %s", finished, tail(out))
	}
	return s.unharmed(len(a.steps(repository)))
}

// environment returns the environment variables of an agent: no keys, and a proxy that does not exist, so that it has
// no network.
func environment(work string) []string {
	env := []string{"HOME=" + work, "HTTPS_PROXY=http://127.0.0.1:9", "HTTP_PROXY=http://127.0.0.1:9",
		"NO_PROXY=127.0.0.1,localhost", "no_proxy=127.0.0.1,localhost"}
	for _, name := range []string{"PATH", "TMPDIR", "LANG"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

func tail(out []byte) string { return strings.TrimSpace(string(out[max(0, len(out)-1500):])) }

// served is a server in this process that records requests.
type served struct {
	url   string
	stop  context.CancelFunc
	done  chan error
	reply script.Reply

	mu       sync.Mutex
	requests []string // method, path and status of each request
	answered int      // number of requests with tools and status 200
	wrong    []error  // errors of the repeated requests
}

func serve(ctx context.Context, e *sparrow.Engine, reply script.Reply) (*served, error) {
	h, err := server.New(server.Adapt(e), server.Options{Aliases: []string{"claude-*", "gpt-*"}})
	if err != nil {
		return nil, err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, err
	}
	ctx, cancel := context.WithCancel(ctx)
	s := &served{url: "http://" + l.Addr().String(), stop: cancel, done: make(chan error, 1), reply: reply}
	web := &http.Server{Handler: s.watch(h.Handler()), ReadHeaderTimeout: time.Minute}
	go func() {
		<-ctx.Done()
		web.Close()
	}()
	go func() { s.done <- web.Serve(l) }()
	return s, nil
}

// watch returns a handler that records every request, and repeats streaming requests without streaming, because agents
// send only streaming requests.
func (s *served) watch(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		if err != nil {
			return // the client has disconnected
		}
		err = s.whole(h, r.Clone(r.Context()), body) // before the streaming request, after which the agent may exit
		r.Body = io.NopCloser(bytes.NewReader(body))
		n := &noted{ResponseWriter: w, status: http.StatusOK}
		h.ServeHTTP(n, r)
		s.mu.Lock()
		defer s.mu.Unlock()
		s.requests = append(s.requests, fmt.Sprintf("%s %s %d", r.Method, r.URL.Path, n.status))
		if r.Method == http.MethodPost && n.status == http.StatusOK {
			s.answered++
		}
		if err != nil && r.Context().Err() == nil {
			s.wrong = append(s.wrong, fmt.Errorf("%s %s, without a stream: %w", r.Method, r.URL.Path, err))
		}
	})
}

// whole repeats a request without streaming, and checks that the answer is the scripted reply.
func (s *served) whole(h http.Handler, r *http.Request, body []byte) error {
	var fields map[string]json.RawMessage
	if json.Unmarshal(body, &fields) != nil || string(fields["stream"]) != "true" {
		return nil
	}
	delete(fields, "stream")
	delete(fields, "stream_options")
	text, err := json.Marshal(fields)
	if err != nil {
		return err
	}
	r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(text)), int64(len(text))
	answer := httptest.NewRecorder()
	h.ServeHTTP(answer, r)
	if answer.Code != http.StatusOK {
		return fmt.Errorf("status %d: %s", answer.Code, answer.Body)
	}
	want := s.reply(string(body))
	parts := []string{want.Content}
	for _, c := range want.ToolCalls {
		parts = append(parts, `"name":"`+c.Name+`"`)
	}
	for _, part := range parts {
		if !strings.Contains(answer.Body.String(), part) {
			return fmt.Errorf("no %s in %s", part, answer.Body)
		}
	}
	return nil
}

// noted is a ResponseWriter that stores the status.
type noted struct {
	http.ResponseWriter
	status int
}

// WriteHeader records the status.
func (n *noted) WriteHeader(status int) {
	n.status = status
	n.ResponseWriter.WriteHeader(status)
}

// Unwrap makes http.ResponseController work with the wrapped writer.
func (n *noted) Unwrap() http.ResponseWriter { return n.ResponseWriter }

func (s *served) seen() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.requests)
}

// unharmed checks that every POST succeeded, and that there was at least one per step of the script.
func (s *served) unharmed(steps int) error {
	for _, line := range s.seen() {
		if strings.HasPrefix(line, http.MethodPost) && !strings.HasSuffix(line, " 200") {
			return fmt.Errorf("a request failed: %s", line)
		}
	}
	s.mu.Lock()
	wrong := errors.Join(s.wrong...)
	s.mu.Unlock()
	if wrong != nil {
		return wrong
	}
	if s.answered < steps {
		return fmt.Errorf("it sent %d requests, want at least one for each of %d steps: %v", s.answered, steps,
			s.seen())
	}
	return nil
}

func (s *served) close() error {
	s.stop()
	if err := <-s.done; !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return nil
}
