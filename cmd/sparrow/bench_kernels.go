package main

import (
	"fmt"
	"time"

	"github.com/spf13/cobra"
)

// benchKernelsFlags is everything `sparrow bench kernels` can be told.
type benchKernelsFlags struct {
	device  string
	only    []string
	replays int
	pause   time.Duration
	asJSON  bool
}

func benchKernelsCommand() *cobra.Command {
	var f benchKernelsFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Time the kernels of a device, one operation at a time",
		Long: `Bench kernels runs every kernel at the shapes that matter, checks its result against the host first, and prints its time, rates, its share of
what the device can do, and its share of another engine's speed where that is known.`,
		Example: `  sparrow bench kernels --device cuda
  sparrow bench kernels --device cuda --only topk,index_paged --json
  sparrow bench kernels --device cuda --only 'index_ragged 4096 x 32k' --pause 50ms`,
		Args: cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringVar(&f.device, "device", "cuda", "device to measure: cuda")
	s.StringSliceVar(&f.only, "only", nil, "measure only cases whose name and shape contain one of these texts")
	s.IntVar(&f.replays, "replays", 0, "timed repeats of each case; 0 means 20")
	s.DurationVar(&f.pause, "pause", 0, "rest before each repeat, so that a power limit does not lower the clock")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (f *benchKernelsFlags) run(cmd *cobra.Command) error {
	if f.replays < 0 || f.pause < 0 {
		return fmt.Errorf("bench kernels: --replays %d and --pause %v cannot be negative", f.replays, f.pause)
	}
	switch f.device {
	case "cuda":
		return f.runCUDA(cmd)
	}
	return fmt.Errorf("bench kernels: --device %q: want cuda", f.device)
}
