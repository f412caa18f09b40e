// Command matrix tests popular clients with `sparrow serve` of the built-in model, and prints a line for each client
// and feature.
//
// Clients are installed once, with pinned versions, into virtual environments and a node_modules in the user's cache
// folder or in the folder SPARROW_CLIENTS. If Python, node or a package registry is not available, a line lists the
// skipped clients with the reason. The exit status is 1 if a case failed.
package main

import (
	"bytes"
	"context"
	"embed"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"sparrow/internal/pinned"
	"sparrow/internal/process"
)

// files holds the scripts of the suites and their lists of packages.
//
//go:embed *.py *.mjs *.txt package.json package-lock.json
var files embed.FS

// Maximum times of started programs.
const (
	installTime = 10 * time.Minute
	suiteTime   = 6 * time.Minute
)

// model is the name of the built-in model.
const model = "sparrow-tiny"

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	failed, err := run(ctx)
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "matrix:", err)
		os.Exit(1)
	}
	if failed {
		os.Exit(1)
	}
}

// suite is a script that tests clients, with its own installation of packages.
type suite struct {
	name string
	// install installs the packages and returns the command that runs the script.
	install func(ctx context.Context, home string) (command []string, err error)
}

// suites returns all suites; work is the folder with their scripts.
func suites(work string) []suite {
	var list []suite
	for _, name := range []string{"current", "older", "measure"} {
		list = append(list, suite{name + ".py", func(ctx context.Context, home string) ([]string, error) {
			lock, err := files.ReadFile(name + ".txt")
			if err != nil {
				return nil, err
			}
			python, err := pinned.Python(ctx, home, name, lock)
			return []string{python, filepath.Join(work, name+".py")}, err
		}})
	}
	return append(list, suite{"clients.mjs", installNode})
}

// run installs all suites concurrently, then runs one after the other.
func run(ctx context.Context) (failed bool, err error) {
	home, err := pinned.Cache()
	if err != nil {
		return false, err
	}
	work, err := os.MkdirTemp("", "sparrow-matrix-")
	if err != nil {
		return false, err
	}
	defer os.RemoveAll(work)
	if err := unpack(work); err != nil {
		return false, err
	}
	root, err := moduleRoot(ctx)
	if err != nil {
		return false, err
	}
	tokenizer, err := copyTokenizer(filepath.Join(root, "builtin"), work)
	if err != nil {
		return false, err
	}
	list := suites(work)
	commands, skipped := make([][]string, len(list)), make([]error, len(list))
	var installing sync.WaitGroup
	for i, s := range list {
		installing.Go(func() {
			limited, cancel := context.WithTimeout(ctx, installTime)
			defer cancel()
			commands[i], skipped[i] = s.install(limited, home)
		})
	}
	program, err := process.Sparrow(ctx, work)
	if err != nil {
		return false, err
	}
	srv, err := program.Serve(ctx, "server")
	if err != nil {
		return false, err
	}
	defer srv.Kill()
	installing.Wait()
	t := &tally{out: os.Stdout}
	for i, s := range list {
		if skipped[i] != nil {
			fmt.Printf("skipped: %s: %v\n", s.name, skipped[i])
			continue
		}
		t.suite(ctx, s.name, append(commands[i], srv.URL, model, tokenizer, program.Path, root))
	}
	t.check("server", "no panic, no error of its own", unharmed(ctx, srv))
	t.check("server", "ends on request", srv.End(os.Interrupt))
	fmt.Printf("%d passed, %d failed\n", t.passed, t.failed)
	return t.failed > 0, nil
}

// unpack writes the scripts to a folder.
func unpack(to string) error {
	list, err := files.ReadDir(".")
	if err != nil {
		return err
	}
	for _, f := range list {
		text, err := files.ReadFile(f.Name())
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(to, f.Name()), text, 0o644); err != nil {
			return err
		}
	}
	return nil
}

// copyTokenizer creates a folder with the tokenizer of the built-in model.
func copyTokenizer(from, work string) (string, error) {
	to := filepath.Join(work, "tokenizer")
	if err := os.Mkdir(to, 0o755); err != nil {
		return "", err
	}
	for _, name := range []string{"tokenizer.json", "tokenizer_config.json"} {
		text, err := os.ReadFile(filepath.Join(from, name))
		if err != nil {
			return "", err
		}
		if err := os.WriteFile(filepath.Join(to, name), text, 0o644); err != nil {
			return "", err
		}
	}
	return to, nil
}

func moduleRoot(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("go env GOMOD: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// tally prints and counts results.
type tally struct {
	out            io.Writer
	passed, failed int
}

// check counts one result.
func (t *tally) check(client, feature string, err error) {
	t.line(client, feature, "", err)
}

func (t *tally) line(client, feature, took string, err error) {
	if err != nil {
		t.failed++
		text, _, _ := strings.Cut(err.Error(), "\n")
		fmt.Fprintf(t.out, "FAIL  %-26s %-34s %s\n", client, feature, text)
		return
	}
	t.passed++
	fmt.Fprintf(t.out, "ok    %-26s %-34s %s\n", client, feature, took)
}

// suite runs a script and counts the results that it prints. If it fails, its other output is printed.
func (t *tally) suite(ctx context.Context, name string, command []string) {
	ctx, cancel := context.WithTimeout(ctx, suiteTime)
	defer cancel()
	before := t.failed
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Env, cmd.WaitDelay = plainEnvironment(), time.Second
	var faults bytes.Buffer
	cmd.Stderr = &faults
	out, err := cmd.Output()
	cases := 0
	for line := range bytes.Lines(out) {
		var c struct {
			Client, Feature string
			Seconds         float64
			Error           *string
		}
		if json.Unmarshal(line, &c) != nil || c.Client == "" {
			continue
		}
		cases++
		var bad error
		if c.Error != nil {
			bad = errors.New(*c.Error)
		}
		t.line(c.Client, c.Feature, fmt.Sprintf("%.2f s", c.Seconds), bad)
	}
	if err != nil || cases == 0 {
		t.check(name, "the suite itself", fmt.Errorf("%d cases, then %v", cases, err))
	}
	if t.failed > before {
		text := faults.String()
		fmt.Fprintf(t.out, "--- what %s printed last\n%s\n---\n", name, text[max(0, len(text)-8000):])
	}
}

// plainEnvironment returns the environment variables for clients: ours without keys, addresses and proxies.
func plainEnvironment() []string {
	env := []string{"LITELLM_LOCAL_MODEL_COST_MAP=True", "HF_HUB_OFFLINE=1", "OPENAI_AGENTS_DISABLE_TRACING=1"}
	for _, name := range []string{"PATH", "HOME", "TMPDIR", "TEMP", "LANG", "SYSTEMROOT", "USERPROFILE"} {
		if v, ok := os.LookupEnv(name); ok {
			env = append(env, name+"="+v)
		}
	}
	return env
}

// unharmed checks by the server's metrics that no request has failed in the server.
func unharmed(ctx context.Context, s *process.Server) error {
	counts, err := s.Metrics(ctx)
	if err != nil {
		return err
	}
	for name, n := range counts {
		if n > 0 && (strings.HasPrefix(name, "sparrow_http_requests_total{") && strings.Contains(name, `status="5`) ||
			strings.HasPrefix(name, "sparrow_http_panics_total")) {
			return fmt.Errorf("%s %v", name, n)
		}
	}
	return nil
}
