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
		return fmt.Errorf("%s: no command %q; there are %s. See '%[1]s --help'", c.CommandPath(), args[0],
			strings.Join(names, ", "))
	}
}
