package main

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// helpColumns is the width of help texts in columns. It is narrow enough for two terminals side by side.
const helpColumns = 100

// flagGroup is a heading of --help with the flags below it, common ones first.
type flagGroup struct {
	title string
	flags string // names of flags, separated by spaces
}

// flagGroups lists the headings for commands with many flags. Flags that are in no group are printed first.
var flagGroups = []flagGroup{
	{"Model", "model dummy dummy-experts name chat-format context draft draft-accept control-tokens weights-root"},
	{"Device", "kernels gpu gpus workers experts gpu-memory expert-usage ranks attention rank-timeout pack numa " +
		"pretend limit-memory limit-smem limit-sms limit-bus"},
	{"Cache", "kv cache-tokens no-prefix-cache host-cache disk-cache disk-cache-size page-store tier-wait fp4-index"},
	{"Limits", "max-running max-queue max-stall max-wait step-tokens request-memory request-timeout store-bytes " +
		"record-bytes plan-history tenant-limits grace drain-delay"},
	{"Network", "host port listen socket-mode tls-cert tls-key allow-host api-keys admin-keys cors no-page role " +
		"transfer-listen transfer-host transfer-from"},
	{"Logs, metrics and events", "log-level log-json vllm-metrics kv-events kv-events-replay kv-events-id objective " +
		"watchdog"},
	{"Advanced", "deterministic precise strict prefill decode dense split-keys self-test no-graphs no-overlap " +
		"pad-states"},
	{"Of other engines' kernels (--catalog public)", "page dense-capacity chunked-prefill topk tie-break fused " +
		"scores cp automatic-splits v4-schedule score-cap tbo hisparse v4-q8 no-preshuffle"},
}

// manyFlags is the minimum number of flags for which help prints them in groups.
const manyFlags = 20

// setHelp makes every command print its flags in groups and its texts in lines of helpColumns.
func setHelp(root *cobra.Command) {
	root.SetHelpFunc(func(c *cobra.Command, _ []string) {
		out := c.OutOrStdout()
		text := c.Long
		if text == "" {
			text = c.Short
		}
		fmt.Fprintf(out, "%s\n\n", wrap(text))
		writeUsage(out, c)
	})
	root.SetUsageFunc(func(c *cobra.Command) error {
		writeUsage(c.OutOrStderr(), c)
		return nil
	})
}

// writeUsage prints the usage of a command: its form, examples, subcommands and flags.
func writeUsage(w io.Writer, c *cobra.Command) {
	fmt.Fprintln(w, "Usage:")
	if c.Runnable() {
		fmt.Fprintf(w, "  %s\n", c.UseLine())
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "  %s [command]\n", c.CommandPath())
	}
	if c.HasExample() {
		fmt.Fprintf(w, "\nExamples:\n%s\n", c.Example)
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintln(w, "\nCommands:")
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() || sub.Name() == "help" {
				fmt.Fprintf(w, "  %-*s %s\n", sub.NamePadding(), sub.Name(), sub.Short)
			}
		}
	}
	for _, g := range groupFlags(c) {
		fmt.Fprintf(w, "\n%s:\n%s", g.title, g.flags.FlagUsagesWrapped(helpColumns))
	}
	if c.HasAvailableSubCommands() {
		fmt.Fprintf(w, "\nUse \"%s [command] --help\" for more information about a command.\n", c.CommandPath())
	}
}

// groupedFlags is a heading with the flags of one command.
type groupedFlags struct {
	title string
	flags *pflag.FlagSet
}

// groupFlags divides the visible flags of a command, including inherited ones.
func groupFlags(c *cobra.Command) []groupedFlags {
	var all []*pflag.Flag
	collect := func(f *pflag.Flag) {
		if !f.Hidden && f.Deprecated == "" {
			all = append(all, f)
		}
	}
	c.LocalFlags().VisitAll(collect)
	c.InheritedFlags().VisitAll(collect)
	first := groupedFlags{"Flags", newGroup()}
	if len(all) < manyFlags {
		for _, f := range all {
			first.flags.AddFlag(f)
		}
		return []groupedFlags{first}
	}
	list := []groupedFlags{first}
	for _, g := range flagGroups {
		group := groupedFlags{g.title, newGroup()}
		for _, name := range strings.Fields(g.flags) {
			if i := slices.IndexFunc(all, func(f *pflag.Flag) bool { return f.Name == name }); i >= 0 {
				group.flags.AddFlag(all[i])
				all = slices.Delete(all, i, i+1)
			}
		}
		list = append(list, group)
	}
	for _, f := range all {
		first.flags.AddFlag(f)
	}
	if first.flags.HasFlags() && len(all) == 1 { // the only flag is --help
		list = append(list[1:], first)
	}
	return slices.DeleteFunc(list, func(g groupedFlags) bool { return !g.flags.HasFlags() })
}

func newGroup() *pflag.FlagSet {
	s := pflag.NewFlagSet("", pflag.ContinueOnError)
	s.SortFlags = false
	return s
}

// wrap breaks paragraphs, which are separated by empty lines, into lines of helpColumns. A line that begins with a
// space is a row of a list: its further lines are indented to its last column.
func wrap(text string) string {
	var out []string
	paragraph := "" // text of the paragraph so far
	end := func() {
		if paragraph != "" {
			out = append(out, fill(paragraph, "", "")...)
		}
		paragraph = ""
	}
	for _, line := range strings.Split(text, "\n") {
		switch {
		case line == "":
			end()
			out = append(out, "")
		case line[0] == ' ':
			end()
			indent := lastColumn(line)
			out = append(out, fill(line[indent:], line[:indent], strings.Repeat(" ", indent))...)
		default:
			paragraph += " " + line
		}
	}
	end()
	return strings.Join(out, "\n")
}

// lastColumn returns the offset of the last column of a row, which begins after the last two consecutive spaces.
func lastColumn(line string) int {
	if i := strings.LastIndex(line, "  "); i >= 0 {
		return i + 2
	}
	return len(line) - len(strings.TrimLeft(line, " "))
}

// fill breaks words into lines of helpColumns. The first line begins with first, the others with rest.
func fill(text, first, rest string) (lines []string) {
	line, begins := first, len(first)
	for _, word := range strings.Fields(text) {
		if len(line) > begins {
			if len(line)+1+len(word) <= helpColumns {
				line += " " + word
				continue
			}
			lines = append(lines, line)
			line, begins = rest, len(rest)
		}
		line += word
	}
	return append(lines, line)
}
