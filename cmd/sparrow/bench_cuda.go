package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"sparrow/internal/bench/cuda"
	"sparrow/internal/bench/harness"
	"sparrow/internal/cuda/op"
	"sparrow/kernel/cuda"
)

// runCUDA checks and times the CUDA kernels. The error lists the cases that failed their check; the others are still
// printed.
func (f *benchKernelsFlags) runCUDA(cmd *cobra.Command) (err error) {
	cases, err := harness.Match(bench.Cases(), f.only)
	if err != nil {
		return fmt.Errorf("--only: %w", err)
	}
	available, open := cuda.Available, cuda.Open
	if f.kernels[0] == op.PortableName {
		available, open = cuda.PortableAvailable, cuda.OpenPortable
	}
	if err := available(); err != nil {
		return fmt.Errorf("bench kernels --kernels %s: %w", f.kernels[0], err)
	}
	d, err := open(0)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.Close()) }()
	k, err := d.LoadKernels()
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, k.Close()) }()
	bar := newProgress(cmd.ErrOrStderr(), "kernels")
	defer bar.end()
	o := bench.Options{Replays: f.replays, Pause: f.pause, Progress: func(done, total int, what string) {
		bar.set(int64(done), int64(total), what)
	}}
	r, failed := bench.Run(cmd.Context(), d, k, cases, o)
	bar.end()
	if r != nil && len(r.Results) > 0 {
		r.Commit = revision()
		if f.asJSON {
			err = writeJSON(cmd.OutOrStdout(), r)
		} else {
			err = r.Print(cmd.OutOrStdout())
		}
	}
	return errors.Join(err, failed)
}
