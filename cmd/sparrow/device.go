package main

import (
	"fmt"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/model/placement"
)

// deviceFlags say what computes, shared by every command that opens a device for a whole model.
type deviceFlags struct {
	kernels string
	gpu     int
	workers int
	pack    bool
	precise bool

	hostExperts float64
	hostMethods string
}

func (d *deviceFlags) add(f *pflag.FlagSet) {
	addKernels(f, &d.kernels)
	f.IntVar(&d.gpu, "gpu", 0, "which GPU, counted from 0, where --kernels is for GPUs")
	f.IntVar(&d.workers, "workers", 0, "CPU threads; 0 means one for each core")
	f.BoolVar(&d.pack, "pack", false, "copy the weights at load to huge pages, which may help where pages of files "+
		"are small; takes as much memory again; --kernels auto then means the CPU")
	f.BoolVar(&d.precise, "precise", false, "on a CPU, multiply float32 activations whole; slower, above all with the "+
		"block formats of GGUF files, whose products otherwise take activations in 8 bits")
	f.Float64Var(&d.hostExperts, "host-experts", 0, "share of every layer's experts that are in host memory beside a "+
		"GPU, from 0 to 1, for models larger than its memory (docs/offload.md)")
	f.StringVar(&d.hostMethods, "host-methods", "computed,computed", "what is done with experts in host memory, for "+
		"decodes and for prompts: computed (by the CPU) or fetched (to the GPU)")
}

// experts are the experts in host memory that the flags ask for.
func (d *deviceFlags) experts() (sparrow.HostExperts, error) {
	h := sparrow.HostExperts{Share: d.hostExperts}
	if !(h.Share >= 0 && h.Share <= 1) {
		return h, fmt.Errorf("--host-experts %v: want a share from 0 to 1", h.Share)
	}
	methods := map[string]placement.Method{"computed": placement.Computed, "fetched": placement.Fetched}
	decode, prefill, _ := strings.Cut(d.hostMethods, ",")
	var known [2]bool
	h.Decode, known[0] = methods[decode]
	h.Prefill, known[1] = methods[prefill]
	if known != [2]bool{true, true} {
		return h, fmt.Errorf("--host-methods %s: want a method for decodes and one for prompts, computed or fetched, "+
			"such as computed,fetched", d.hostMethods)
	}
	return h, nil
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

// warnings prints what is worth knowing and stops nothing, a line each.
func warnings(cmd *cobra.Command) func(string) {
	return func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text) }
}
