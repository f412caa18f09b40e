package main

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noArguments refuses arguments of commands that have only flags or subcommands.
func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	if c.HasSubCommands() {
		return noCommand(c, args[0])
	}
	return fmt.Errorf("%s takes no arguments, but %q was given; flags begin with --, see '%s --help'",
		c.CommandPath(), args[0], c.CommandPath())
}

// oneFolder requires exactly one argument, a folder.
func oneFolder(c *cobra.Command, args []string) error {
	switch len(args) {
	case 0:
		return fmt.Errorf("%s: no folder was given; use it as: %s", c.Name(), c.UseLine())
	case 1:
		return nil
	}
	return fmt.Errorf("%s: want one folder, but %d were given (%s); use it as: %s", c.Name(), len(args),
		strings.Join(args, ", "), c.UseLine())
}

// sourceAndTarget requires two arguments: the file to read and the file to write.
func sourceAndTarget(c *cobra.Command, args []string) error {
	if len(args) == 2 {
		return nil
	}
	return fmt.Errorf("%s: want a source and a file to write, but %d arguments were given; use it as: %s", c.Name(),
		len(args), c.UseLine())
}

// mostOneFolder allows at most one argument, a folder; without one, the command uses its default model.
func mostOneFolder(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return oneFolder(c, args)
}

// mostOneModel allows at most one argument: a folder, a file or the name of a model.
func mostOneModel(c *cobra.Command, args []string) error {
	if len(args) < 2 {
		return nil
	}
	return fmt.Errorf("%s: want one model, but %d were given (%s); use it as: %s", c.Name(), len(args),
		strings.Join(args, ", "), c.UseLine())
}

// wanted describes the value of a flag, by its type.
var wanted = map[string]string{
	"int": "a whole number", "int64": "a whole number", "uint64": "a whole number from 0", "float64": "a number",
	"bool": "true or false", "duration": "a time such as 30s or 5m", "intSlice": "whole numbers separated by commas",
	"float64Slice": "numbers separated by commas", "bytes": "a number of bytes such as 500M or 4G",
}

// flagError returns the error for a value that cannot be parsed, with the accepted values, or for an unknown flag, with
// the flag that was probably meant.
func flagError(c *cobra.Command, err error) error {
	if none := (*pflag.NotExistError)(nil); errors.As(err, &none) {
		name := none.GetSpecifiedName()
		hint := ""
		if none.GetSpecifiedShortnames() == "" {
			if hint = insteadOf(name); hint == "" {
				hint = suggestion("--"+name, flagNames(c.Flags()))
			}
		}
		if hint == "" {
			hint = fmt.Sprintf("; see '%s --help'", c.CommandPath())
		}
		return fmt.Errorf("%w%s", err, hint)
	}
	var bad *pflag.InvalidValueError
	if !errors.As(err, &bad) {
		return err
	}
	want, ok := wanted[bad.GetFlag().Value.Type()]
	switch {
	case !ok:
		return err
	case errors.Is(err, strconv.ErrRange):
		return fmt.Errorf("--%s %s: the number is too large", bad.GetFlag().Name, bad.GetValue())
	}
	return fmt.Errorf("--%s %s: want %s", bad.GetFlag().Name, bad.GetValue(), want)
}
