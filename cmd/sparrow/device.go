package main

import (
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
)

// deviceFlags say what computes, shared by every command that opens a device for a whole model.
type deviceFlags struct {
	kernels string
	gpu     int
	workers int
	pack    bool
	precise bool
}

func (d *deviceFlags) add(f *pflag.FlagSet) {
	addKernels(f, &d.kernels)
	f.IntVar(&d.gpu, "gpu", 0, "which GPU, counted from 0, where --kernels is for GPUs")
	f.IntVar(&d.workers, "workers", 0, "CPU threads; 0 means one for each core")
	f.BoolVar(&d.pack, "pack", false, "copy the weights at load to huge pages, which may help where pages of files "+
		"are small; takes as much memory again; --kernels auto then means the CPU")
	f.BoolVar(&d.precise, "precise", false, "on a CPU, multiply float32 activations whole; slower, above all with the "+
		"block formats of GGUF files, whose products otherwise take activations in 8 bits")
}

// addKernels adds --kernels alone, for a command that takes the rest of a device as it is.
func addKernels(f *pflag.FlagSet, kernels *string) {
	f.StringVar(kernels, "kernels", sparrow.AutoKernels,
		"kernels to run: auto (a GPU that can run the model, else the CPU), cuda (a Hopper GPU), cpu (best of this "+
			"machine), ref, or a name from 'sparrow version'")
}

// addRanks adds --ranks, for commands that run whole models.
func addRanks(f *pflag.FlagSet, ranks *int) {
	f.IntVar(ranks, "ranks", 0, "CPU devices that share the model, each with a part of its heads, experts, vocabulary "+
		"and of the threads (docs/ranks.md); 0 and 1 are one")
}

// addDeviceSampling adds --device-sampling, for commands that generate text or draft.
func addDeviceSampling(f *pflag.FlagSet, on *bool) {
	f.BoolVar(on, "device-sampling", false, "on a GPU, draw tokens of requests that sample plainly there, and draft "+
		"without waiting for the host; answers are the same (docs/gpu.md)")
}

// warnings prints what is worth knowing and stops nothing, a line each.
func warnings(cmd *cobra.Command) func(string) {
	return func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text) }
}
