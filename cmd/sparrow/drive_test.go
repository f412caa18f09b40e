package main

import (
	"bytes"
	"context"
	"io"
	"strings"
	"sync"
	"testing"

	"github.com/spf13/cobra"
)

// drive runs a command in this process with the given standard input, and returns its output and error.
func drive(in string, args ...string) (stdout, stderr string, err error) {
	var out, errs bytes.Buffer
	c := root()
	c.SetArgs(args)
	c.SetIn(strings.NewReader(in))
	c.SetOut(&out)
	c.SetErr(&errs)
	err = c.ExecuteContext(context.Background())
	return out.String(), errs.String(), err
}

// mustDrive runs a command like drive and fails the test if the command fails.
func mustDrive(t *testing.T, in string, args ...string) (stdout, stderr string) {
	t.Helper()
	stdout, stderr, err := drive(in, args...)
	if err != nil {
		t.Fatalf("sparrow %s: %v\n%s", strings.Join(args, " "), err, stderr)
	}
	return stdout, stderr
}

// watcher collects output that a test reads while a command still writes. It calls hit once, when the output contains
// met.
type watcher struct {
	mu   sync.Mutex
	text strings.Builder
	met  string
	hit  func()
}

func (w *watcher) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text.Write(p)
	if w.hit != nil && strings.Contains(w.text.String(), w.met) {
		w.hit()
		w.hit = nil
	}
	return len(p), nil
}

func (w *watcher) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.text.String()
}

func TestEveryCommandHasHelpWithExamples(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		if c.Short == "" || !strings.Contains(c.Example, "sparrow ") {
			t.Errorf("%s: short help %q, examples %q", c.CommandPath(), c.Short, c.Example)
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden { // removed
				walk(sub)
			}
		}
	}
	walk(root())
	out, _ := mustDrive(t, "", "--help")
	for _, name := range []string{"serve", "run", "explain", "inspect", "verify", "synth", "bench", "version",
		"completion"} {
		if !strings.Contains(out, "\n  "+name) {
			t.Errorf("--help does not list %s", name)
		}
	}
}

// Every flag in the examples of the help texts exists.
func TestExamplesUseFlagsThatExist(t *testing.T) {
	var walk func(c *cobra.Command)
	walk = func(c *cobra.Command) {
		for line := range strings.Lines(c.Example) {
			_, line, _ = strings.Cut(line, "sparrow ")
			target, rest, err := root().Find(strings.Fields(line))
			if err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
				continue
			}
			target.SetOut(io.Discard)
			if err := target.ParseFlags(rest); err != nil {
				t.Errorf("%s: %q: %v", c.CommandPath(), line, err)
			}
		}
		for _, sub := range c.Commands() {
			if !sub.Hidden { // removed
				walk(sub)
			}
		}
	}
	walk(root())
}

func TestVersionFlagAndCommandAgree(t *testing.T) {
	flag, _ := mustDrive(t, "", "--version")
	command, _ := mustDrive(t, "", "version")
	if !strings.Contains(flag, version()) || !strings.HasPrefix(command, "sparrow "+version()) {
		t.Errorf("--version says %q, version says %q", flag, command)
	}
}

func TestShellsCompleteFlagValues(t *testing.T) {
	for _, c := range []struct {
		args []string
		want []string
		not  string
	}{
		{[]string{"serve", "--kv", ""}, []string{"bf16", "fp8", "fp8-576", "f32"}, "sparse-flat"},
		{[]string{"run", "--kv", "fp8"}, []string{"fp8", "fp8-576"}, "bf16"},
		{[]string{"explain", "--kv", ""}, []string{"bf16", "fp8"}, "sparse-flat"},
		{[]string{"bench", "serve", "--kernels", ""}, []string{"cpu", "ref"}, "fp8"},
		{[]string{"synth", "x", "--config", "v32"}, []string{"v32-tiny", "v32-mini"}, "glm-tiny"},
		{[]string{"synth", "x", "--dtype", ""}, []string{"bf16", "fp8"}, "f32"},
		{[]string{"serve", "--log-level", ""}, []string{"debug", "error"}, "bf16"},
		{[]string{"serve", "--mod"}, []string{"--model"}, "--max"},
	} {
		out, _ := mustDrive(t, "", append([]string{"__complete"}, c.args...)...)
		offered := map[string]bool{}
		for line := range strings.Lines(out) {
			word, _, _ := strings.Cut(strings.TrimSpace(line), "\t")
			offered[word] = true
		}
		for _, w := range c.want {
			if !offered[w] {
				t.Errorf("%v does not offer %q: %q", c.args, w, out)
			}
		}
		if offered[c.not] {
			t.Errorf("%v offers %q", c.args, c.not)
		}
	}
	for _, shell := range []string{"bash", "zsh", "fish", "powershell"} {
		if out, _ := mustDrive(t, "", "completion", shell); !strings.Contains(out, "sparrow") {
			t.Errorf("no completion script for %s", shell)
		}
	}
}
