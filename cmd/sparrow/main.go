// Sparrow serves DeepSeek sparse-attention models from one binary. This command converts flags to configuration and
// connects packages; other packages choose kernels and plans.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"sparrow/internal/device"
	"sparrow/kernel"
)

// errReported makes the program exit with status 1; the command has already printed the reason.
var errReported = errors.New("")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	context.AfterFunc(ctx, stop) // a second signal ends the program immediately
	status := run(ctx, os.Args[1:], os.Stdout, os.Stderr)
	stop()
	os.Exit(status)
}

// statusInterrupted is the exit status of a program that was stopped by Ctrl-C: 128 plus the number of the signal.
const statusInterrupted = 130

// run runs the program and returns the exit status: 1 if a command failed, 130 if it was interrupted.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) int {
	c := root()
	c.SetArgs(args)
	c.SetOut(stdout)
	c.SetErr(stderr)
	c.InitDefaultCompletionCmd() // the completion commands write to the outputs that were set above
	nameSubcommands(c)
	nameTopics(c)
	err := c.ExecuteContext(ctx)
	if err == nil {
		return 0
	}
	if ctx.Err() != nil {
		err = interrupted(err)
	}
	if !errors.Is(err, errReported) {
		// Errors of the library begin with its name.
		fmt.Fprintln(stderr, "sparrow:", strings.TrimPrefix(err.Error(), "sparrow: "))
	}
	if errors.Is(err, errInterrupted) {
		return statusInterrupted
	}
	return 1
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:   "sparrow",
		Short: "Serve DeepSeek sparse-attention models, and show how",
		Example: `  sparrow run "Rolf plants 22 trees every day for 7 days. How many trees is that?"
  sparrow serve
  sparrow explain --family deepseek_v32 --kv fp8 --batch extend:3000`,
		Version:       version(),
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(serveCommand(), runCommand(), pullCommand(), verifyCommand(), explainCommand(), inspectCommand(),
		synthCommand(), quantizeCommand(), benchCommand(), evalCommand(), healthCommand(), versionCommand())
	c.AddCommand(removedCommands()...)
	c.SetFlagErrorFunc(flagError)
	addCompletions(c)
	setHelp(c)
	return c
}

// registry returns the kernels of this build, best first.
func registry() *kernel.Registry { return device.Registry() }
