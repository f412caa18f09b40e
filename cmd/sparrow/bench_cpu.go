package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"sparrow/internal/bench/harness"
	"sparrow/internal/bench/kernels"
	"sparrow/kernel"
)

// runCPU checks and times the operations of the CPU backends. The error lists the cases that failed their check; the
// others are still printed.
func (f *benchKernelsFlags) runCPU(cmd *cobra.Command) error {
	cases, err := harness.Match(kernels.Cases(), f.only)
	if err != nil {
		return fmt.Errorf("bench kernels: --only: %w", err)
	}
	for _, n := range f.threads {
		if n < 1 {
			return fmt.Errorf("bench kernels: --threads %d: want at least 1", n)
		}
		warnOfThreads(cmd, "--threads", n, usableCores())
	}
	if f.write != "" {
		if _, _, err := aroundSection(f.write, "bench kernels"); err != nil {
			return fmt.Errorf("bench kernels: %w", err)
		}
	}
	bar := newProgress(cmd.ErrOrStderr(), "kernels")
	o := kernels.Options{Backends: cpuBackends(), Kernels: f.kernels, Threads: f.threads, Rounds: f.replays,
		OneDNN: f.oneDNN, Partial: len(f.only) > 0, Progress: func(done, total int, what string) {
			bar.set(int64(done), int64(total), what)
		}}
	r, failed := kernels.Run(cmd.Context(), cases, o)
	bar.end()
	if r == nil || len(r.Results) == 0 {
		return failed
	}
	r.Commit = revision()
	o.Partial = o.Partial || cmd.Context().Err() != nil // targets without a measured case are not printed
	if err := r.Judge(o); err != nil {
		return errors.Join(err, failed)
	}
	if f.write != "" {
		if err := writeSection(f.write, "bench kernels", r.Markdown); err != nil {
			return errors.Join(fmt.Errorf("bench kernels: %w", err), failed)
		}
	}
	switch {
	case f.asJSON:
		err = writeJSON(cmd.OutOrStdout(), r)
	case f.markdown:
		err = r.Markdown(cmd.OutOrStdout())
	default:
		err = r.Print(cmd.OutOrStdout())
	}
	return errors.Join(err, failed)
}

// cpuBackends returns the backends for CPUs, without the reference.
func cpuBackends() []kernel.Backend {
	var out []kernel.Backend
	for _, b := range registry().Backends() {
		if b.Hardware == "cpu" && !strings.HasPrefix(b.Name, "ref") {
			out = append(out, b)
		}
	}
	return out
}
