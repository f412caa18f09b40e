package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
)

// nameSubcommands makes every command that only groups others print its help when asked for nothing, and refuse a
// name it does not know; cobra would print the help and report success.
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
		var names []string
		for _, sub := range c.Commands() {
			if sub.IsAvailableCommand() {
				names = append(names, sub.Name())
			}
		}
		hint := suggestion(args[0], names)
		if hint == "" {
			hint = fmt.Sprintf("; there are %s. See '%s --help'", strings.Join(names, ", "), c.CommandPath())
		}
		return fmt.Errorf("%s: no command %q%s", c.CommandPath(), args[0], hint)
	}
}
