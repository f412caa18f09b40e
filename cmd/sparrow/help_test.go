package main

import (
	"bytes"
	"flag"
	"os"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/spf13/cobra"
)

// everyCommand calls do for the program itself and then for every command that users see.
func everyCommand(do func(*cobra.Command)) {
	var walk func(*cobra.Command)
	walk = func(c *cobra.Command) {
		do(c)
		for _, sub := range c.Commands() {
			if !sub.Hidden && sub.Name() != "completion" && sub.Name() != "help" {
				walk(sub)
			}
		}
	}
	walk(root())
}

// helpOf returns the text that a command prints for --help.
func helpOf(t *testing.T, c *cobra.Command) string {
	t.Helper()
	var out bytes.Buffer
	c.InitDefaultHelpFlag()
	c.SetOut(&out)
	if err := c.Help(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// The help prints every flag once, in lines that fit the terminal, and does not break the lines of examples.
func TestHelpFitsAndHasEveryFlag(t *testing.T) {
	everyCommand(func(c *cobra.Command) {
		text := helpOf(t, c)
		before, after, _ := strings.Cut(text, "\nExamples:\n")
		_, flags, _ := strings.Cut(after, "\n\n")
		for line := range strings.Lines(before + flags) {
			if n := utf8.RuneCountInString(strings.TrimRight(line, "\n")); n > helpColumns {
				t.Errorf("%s: %d columns: %s", c.CommandPath(), n, line)
			}
		}
		seen := 0
		for _, g := range groupFlags(c) {
			if n := strings.Count(g.flags.FlagUsages(), "\n"); n > 30 {
				t.Errorf("%s: %d flags below %s", c.CommandPath(), n, g.title)
			} else {
				seen += n
			}
		}
		if want := strings.Count(c.LocalFlags().FlagUsages()+c.InheritedFlags().FlagUsages(), "\n"); seen != want {
			t.Errorf("%s: %d flags in groups, %d in all", c.CommandPath(), seen, want)
		}
	})
}

// Every flag that a group of the help names exists.
func TestGroupsNameFlags(t *testing.T) {
	exists := map[string]bool{}
	everyCommand(func(c *cobra.Command) {
		for _, g := range flagGroups {
			for _, name := range strings.Fields(g.flags) {
				exists[name] = exists[name] || c.Flags().Lookup(name) != nil
			}
		}
	})
	for name, ok := range exists {
		if !ok {
			t.Errorf("no command has --%s", name)
		}
	}
}

var updateReference = flag.Bool("update-reference", false, "write docs/commands.md anew")

// docs/commands.md equals the help texts of the commands.
func TestCommandReference(t *testing.T) {
	const path = "../../docs/commands.md"
	var want strings.Builder
	want.WriteString("# Commands and their flags\n\nMade by `go test ./cmd/sparrow -run TestCommandReference -args " +
		"-update-reference` from what `--help` prints.\n")
	everyCommand(func(c *cobra.Command) {
		want.WriteString("\n## " + c.CommandPath() + "\n\n```\n" + helpOf(t, c) + "```\n")
	})
	if *updateReference {
		if err := os.WriteFile(path, []byte(want.String()), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if string(got) != want.String() {
		t.Error("docs/commands.md is not what the commands print; go test ./cmd/sparrow -run TestCommandReference " +
			"-args -update-reference writes it")
	}
}
