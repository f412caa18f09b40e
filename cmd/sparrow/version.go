package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"

	"sparrow"
)

func versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:     "version",
		Short:   "Print the version of this build and its kernels",
		Example: "  sparrow version",
		Args:    noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error {
			out := cmd.OutOrStdout()
			fmt.Fprintf(out, "sparrow %s, %s %s/%s\n", version(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
			for _, b := range registry().Backends() {
				state := "ready"
				if err := b.Available(); err != nil {
					state = err.Error()
				}
				fmt.Fprintf(out, "  %-13s %-5s %s (%s)\n", b.Name, b.Hardware, b.Summary, state)
			}
			return nil
		},
	}
}

// version returns the version with the commit from which it was built.
func version() string { return sparrow.Version + " (" + revision() + ")" }

// revision returns the commit from which the binary was built, if the build recorded it.
func revision() string {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	commit, dirty := "", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision" && len(s.Value) >= 12:
			commit = s.Value[:12]
		case s.Key == "vcs.modified" && s.Value == "true":
			dirty = "+changes"
		}
	}
	if commit == "" {
		return "development"
	}
	return commit + dirty
}
