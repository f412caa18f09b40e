package main

import (
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// commands lists every command of our own that is not removed.
func commands(c *cobra.Command) []*cobra.Command {
	var out []*cobra.Command
	for _, sub := range c.Commands() {
		if name := sub.Name(); name != "help" && name != "completion" && !sub.Hidden {
			out = append(append(out, sub), commands(sub)...)
		}
	}
	return out
}

// examples are the lines of a command's examples, without "sparrow".
func examples(t *testing.T, c *cobra.Command) [][]string {
	t.Helper()
	var out [][]string
	// A line that is indented further continues the previous one.
	for _, line := range strings.Split(strings.ReplaceAll(c.Example, "\n    ", " "), "\n") {
		words := strings.Fields(line[strings.LastIndex(line, "|")+1:]) // after a pipe, if any
		if len(words) == 0 || strings.HasPrefix(words[0], "#") {
			continue
		}
		if words[0] != "sparrow" {
			t.Errorf("%s: example %q does not begin with the program's name", c.Name(), line)
			continue
		}
		out = append(out, words[1:])
	}
	return out
}

// Every command has a summary and examples, its help shows them, and the examples name commands and flags that exist.
func TestEveryCommandHasExamples(t *testing.T) {
	all := commands(root())
	if len(all) < 4 {
		t.Fatalf("%d commands", len(all))
	}
	for _, c := range all {
		if c.Short == "" || len(examples(t, c)) == 0 {
			t.Errorf("%s: summary %q, %d examples", c.Name(), c.Short, len(examples(t, c)))
		}
		status, stdout, _ := invoke(append(strings.Fields(c.CommandPath())[1:], "--help")...)
		if status != 0 || !strings.Contains(stdout, "Examples:") ||
			!strings.Contains(stdout, strings.TrimSpace(strings.Split(c.Example, "\n")[0])) {
			t.Errorf("%s --help: status %d\n%s", c.Name(), status, stdout)
		}
		for _, words := range examples(t, c) {
			found, rest, err := root().Find(words)
			if err != nil || !strings.HasPrefix(found.CommandPath(), c.CommandPath()) {
				t.Errorf("%s: example %v runs %v, %v", c.Name(), words, found.CommandPath(), err)
				continue
			}
			if err := found.ParseFlags(rest); err != nil {
				t.Errorf("%s: example %v: %v", c.Name(), words, err)
			}
		}
	}
}

// The examples of explain answer as printed, from the root of the project.
func TestExplainExamplesWork(t *testing.T) {
	t.Chdir("../..")
	for _, words := range examples(t, explainCommand()) {
		if status, stdout, stderr := invoke(words...); status != 0 || stdout == "" {
			t.Errorf("%v: status %d, %s", words, status, stderr)
		}
	}
}

func TestVersion(t *testing.T) {
	status, stdout, stderr := invoke("version")
	if status != 0 || !strings.HasPrefix(stdout, "sparrow ") || !strings.Contains(stdout, "ref ") ||
		!strings.Contains(stdout, "cpu-") {
		t.Errorf("status %d, %s%s", status, stdout, stderr)
	}
}

func TestUnknownCommand(t *testing.T) {
	if status, _, stderr := invoke("explode"); status != 1 || !strings.Contains(stderr, "explode") {
		t.Errorf("status %d, %q", status, stderr)
	}
	if status, stdout, _ := invoke("--help"); status != 0 || !strings.Contains(stdout, "explain") {
		t.Errorf("status %d, %q", status, stdout)
	}
}
