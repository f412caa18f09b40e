// Sparrow serves DeepSeek sparse-attention models from one binary. This command turns flags into configuration and wires packages together;
// it decides nothing.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"

	"github.com/spf13/cobra"

	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// errReported ends the program with status 1 after a command has already said why.
var errReported = errors.New("")

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := root().ExecuteContext(ctx); err != nil {
		if err != errReported {
			fmt.Fprintln(os.Stderr, "sparrow:", err)
		}
		os.Exit(1)
	}
}

func root() *cobra.Command {
	c := &cobra.Command{
		Use:           "sparrow",
		Short:         "Serve DeepSeek sparse-attention models, and show how",
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	c.AddCommand(verifyCommand(), explainCommand(), inspectCommand(), versionCommand())
	return c
}

// registry lists the kernels of this build, best first.
func registry() *kernel.Registry { return kernel.NewRegistry(cpu.Backends(), ref.Backends()) }
