package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// nameSubcommands changes every command that only has subcommands: without arguments it prints its help, and an unknown
// name is an error. Cobra would print the help and succeed.
func nameSubcommands(c *cobra.Command) {
	for _, sub := range c.Commands() {
		nameSubcommands(sub)
	}
	if c.Runnable() || !c.HasSubCommands() {
		return
	}
	c.Args = cobra.ArbitraryArgs
	c.RunE = func(c *cobra.Command, args []string) error {
		if len(args) == 0 {
			return c.Help()
		}
		return noCommand(c, args[0])
	}
}

// nameTopics makes 'help NAME' fail if no command has this name. Cobra would print the help of the program.
func nameTopics(root *cobra.Command) {
	root.InitDefaultHelpCmd()
	for _, c := range root.Commands() {
		if c.Name() != "help" {
			continue
		}
		c.Run = nil
		c.RunE = func(_ *cobra.Command, args []string) error {
			about, rest, err := root.Find(args)
			if err != nil {
				return err
			}
			if len(rest) > 0 && about.HasSubCommands() {
				return noCommand(about, rest[0])
			}
			about.InitDefaultHelpFlag()
			return about.Help()
		}
	}
}

// noCommand returns the error for an unknown subcommand.
func noCommand(c *cobra.Command, name string) error {
	var names []string
	for _, sub := range c.Commands() {
		if sub.IsAvailableCommand() {
			names = append(names, sub.Name())
		}
	}
	hint := suggestion(name, names)
	if hint == "" {
		hint = fmt.Sprintf("; want one of %s. See '%s --help'", strings.Join(names, ", "), c.CommandPath())
	}
	return fmt.Errorf("%s: no command %q%s", c.CommandPath(), name, hint)
}
