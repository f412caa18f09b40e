package main

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"sparrow/internal/cuda/op"
)

// benchKernelsFlags holds the flags of `sparrow bench kernels`.
type benchKernelsFlags struct {
	device   string // old name of --kernels
	only     []string
	replays  int
	pause    time.Duration
	asJSON   bool
	kernels  []string
	threads  []int   // for CPU kernels only
	oneDNN   float64 // for CPU kernels only
	markdown bool    // for CPU kernels only
	write    string  // for CPU kernels only
}

func benchKernelsCommand() *cobra.Command {
	var f benchKernelsFlags
	c := &cobra.Command{
		Use:   "kernels",
		Short: "Time the kernels of a device, one operation at a time",
		Long: `Bench kernels runs every kernel at the shapes of released models and checks its result. It prints the time of each
kernel, its rates and its share of the device's limits. On a CPU the limits are measured in the same rounds: the rate of
plain reads of the same memory, and the rate of the multiply instruction with operands in registers. The project's
targets are printed with the measured figures. On a GPU it also prints the speed relative to another engine, if that is
known.`,
		Example: `  sparrow bench kernels
  sparrow bench kernels --only multiply,scores --threads 1
  sparrow bench kernels --kernels cpu-avx2 --json
  sparrow bench kernels --kernels cuda
  sparrow bench kernels --kernels cuda --only topk,index_paged --json
  sparrow bench kernels --kernels cuda-portable --only product
  sparrow bench kernels --kernels cuda --only 'index_ragged 4096 x 32k' --pause 50ms`,
		Args: noArguments,
		RunE: func(cmd *cobra.Command, _ []string) error { return f.run(cmd) },
	}
	s := c.Flags()
	s.SortFlags = false
	s.StringSliceVar(&f.kernels, "kernels", nil, "kernels to measure: cuda, cuda-portable, cpu (the best of this "+
		"machine), or names of kernels for CPUs from 'sparrow version'; default cpu")
	s.StringVar(&f.device, "device", "", "the old name of --kernels: cpu or cuda")
	if err := s.MarkHidden("device"); err != nil {
		panic(err) // cannot fail: the flag was added one line above
	}
	s.StringSliceVar(&f.only, "only", nil, "measure only cases whose name and shape contain one of these texts")
	s.IntVar(&f.replays, "replays", 0, "timed repeats of each case; 0 means 9 on a CPU, 20 on a GPU")
	s.IntSliceVar(&f.threads, "threads", nil, "cpu: numbers of threads; default 1,2")
	s.Float64Var(&f.oneDNN, "onednn", 0,
		"cpu: GFLOP/s that oneDNN reached on this machine for the bf16 product of the targets, to compare with")
	s.BoolVar(&f.markdown, "markdown", false, "cpu: print tables for a document")
	s.StringVar(&f.write, "write", "",
		"cpu: document whose part between <!-- bench kernels --> and <!-- end --> becomes those tables")
	s.DurationVar(&f.pause, "pause", 0, "cuda: rest before each repeat, so that a power limit does not lower the clock")
	s.BoolVar(&f.asJSON, "json", false, "print JSON")
	return c
}

func (f *benchKernelsFlags) run(cmd *cobra.Command) error {
	if err := counted(count{"replays", f.replays, 0}); err != nil {
		return fmt.Errorf("bench kernels: %w", err)
	}
	if f.pause < 0 {
		return fmt.Errorf("bench kernels: --pause %v: want a positive time, or 0 for none", f.pause)
	}
	switch {
	case f.device == "":
	case f.device != "cpu" && f.device != cudaKernels:
		return fmt.Errorf("bench kernels: --device %q: want cpu or cuda", f.device)
	case f.device == cudaKernels && len(f.kernels) > 0:
		return fmt.Errorf("bench kernels: --device %s is the old name of --kernels; give one of them", f.device)
	case len(f.kernels) == 0:
		f.kernels = []string{f.device}
	}
	if slices.Contains(f.kernels, cudaKernels) || slices.Contains(f.kernels, op.PortableName) {
		if len(f.kernels) > 1 {
			return fmt.Errorf("bench kernels: --kernels %s: kernels of CPUs and of GPUs are measured by separate runs",
				strings.Join(f.kernels, ","))
		}
		if err := f.without(cmd, "threads", "onednn", "markdown", "write"); err != nil {
			return err
		}
		return f.runCUDA(cmd)
	}
	// "cpu" means the best CPU kernels. They are also used if the list is empty.
	f.kernels = slices.DeleteFunc(f.kernels, func(name string) bool { return name == "cpu" })
	if err := f.without(cmd, "pause"); err != nil {
		return err
	}
	return f.runCPU(cmd)
}

// cudaKernels is the name of the GPU kernels in --kernels.
const cudaKernels = op.Name

// without refuses flags that have no effect for the chosen kernels.
func (f *benchKernelsFlags) without(cmd *cobra.Command, names ...string) error {
	for _, n := range names {
		if cmd.Flags().Changed(n) {
			return fmt.Errorf("bench kernels: --%s has no effect with --kernels %s; omit it", n,
				cmp.Or(strings.Join(f.kernels, ","), "cpu"))
		}
	}
	return nil
}
