package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"sparrow"
	"sparrow/internal/device"
	"sparrow/internal/device/group"
	"sparrow/plan"
)

// deviceFlags select the device and its options. All commands that open a device for a whole model share them.
type deviceFlags struct {
	kernels string
	gpu     int
	workers int
	spared  bool // whether spareProcessor has set workers
	pack    bool
	numa    bool
	precise bool
	limitFlags

	processors int // GOMAXPROCS before spareProcessor increased it; 0 if it did not
}

func (d *deviceFlags) add(f *pflag.FlagSet) {
	addKernels(f, &d.kernels)
	f.IntVar(&d.gpu, "gpu", 0, "which GPU, counted from 0, if --kernels is for GPUs")
	d.limitFlags.add(f)
	f.IntVar(&d.workers, "workers", 0, "CPU threads; 0 means GOMAXPROCS if the environment sets it, else "+
		"one for each core of this process, at most the CPU limit of its control group")
	f.BoolVar(&d.pack, "pack", false, "copy the weights at load to huge pages, which may be faster if the page "+
		"cache uses small pages; needs memory for a second copy of the weights; --kernels auto then means the CPU")
	f.BoolVar(&d.numa, "numa", false, "on a machine with several memory nodes, keep threads on their node and copy "+
		"the weights, as --pack does, to the nodes of the threads that read them; Linux")
	f.BoolVar(&d.precise, "precise", false, "on a CPU, use float32 activations in all GEMMs; slower, above all with "+
		"the block formats of GGUF files, whose GEMMs otherwise use 8-bit activations")
}

// settings returns the flags set by the user that change the speed or the result bits on a CPU.
func (d *deviceFlags) settings(i sparrow.Info) []string {
	if i.Memory.Device > 0 {
		return nil
	}
	var out []string
	if d.workers > 0 && !d.spared {
		out = append(out, fmt.Sprintf("--workers %d", d.workers))
	}
	return append(out, d.arithmetic(i)...)
}

// arithmetic returns the flags that change the result bits of the device.
func (d *deviceFlags) arithmetic(i sparrow.Info) []string {
	if i.Memory.Device > 0 || !d.precise {
		return nil
	}
	return []string{"--precise"}
}

// addKernels adds only --kernels, for commands that set the other device options themselves.
func addKernels(f *pflag.FlagSet, kernels *string) {
	f.StringVar(kernels, "kernels", sparrow.AutoKernels,
		"kernels to run: auto (a GPU that can run the model, else the CPU), cuda (a Hopper GPU), cuda-portable (any "+
			"NVIDIA GPU from Ampere on), cpu (best of this machine), ref, or a name from 'sparrow version'")
}

// rankFlags selects the devices that share a model, and how they share attention.
type rankFlags struct {
	ranks           int
	gpus, attention string
}

func (r *rankFlags) add(f *pflag.FlagSet) {
	addRanks(f, &r.ranks)
	f.StringVar(&r.gpus, "gpus", "", "GPUs that share the model: how many, such as 8, or which, such as 0,1 "+
		"(docs/ranks.md lists what was tested)")
	addAttention(f, &r.attention)
}

// addRanks adds only --ranks.
func addRanks(f *pflag.FlagSet, ranks *int) {
	f.IntVar(ranks, "ranks", 0, "CPU devices that share the model, each with a part of its heads or requests, its "+
		"experts, its vocabulary and the threads (docs/ranks.md); 0 and 1 mean one device")
}

// addAttention adds --attention.
func addAttention(f *pflag.FlagSet, attention *string) {
	f.StringVar(attention, "attention", "auto", "how ranks share attention: tp (by heads; each holds the whole "+
		"cache), dp (by requests; each holds the pages of its own), auto (tp if the ranks divide the heads)")
}

// devices returns the devices that the flags select; kernels is the value of --kernels.
func (r *rankFlags) devices(kernels string) (device.Ranks, error) {
	out := device.Ranks{Count: r.ranks}
	if err := counted(count{"ranks", r.ranks, group.MaxRanks}); err != nil {
		return out, err
	}
	var err error
	if out.GPUs, err = parseGPUs(r.gpus); err != nil {
		return out, err
	}
	if r.ranks > 1 && len(out.GPUs) > 0 {
		return out, fmt.Errorf("--ranks %d selects CPU devices and --gpus %s selects GPUs; give one of them", r.ranks,
			r.gpus)
	}
	if r.ranks > 1 && strings.HasPrefix(kernels, "cuda") {
		return out, fmt.Errorf("--ranks %d selects CPU devices, but --kernels %s selects a GPU; for %[1]d GPUs give "+
			"--gpus %[1]d in place of --ranks", r.ranks, kernels)
	}
	out.Attention, err = division(r.attention, max(r.ranks, len(out.GPUs)), "--ranks 2 or --gpus 2")
	return out, err
}

// parseGPUs parses the number of GPUs, or a list of their ordinals.
func parseGPUs(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	bad := fmt.Errorf("--gpus %s: want how many, from 1 to %d, or a list of numbers from 0 on such as 0,1", text,
		group.MaxRanks)
	n, err := strconv.Atoi(text)
	if err == nil && n >= 1 && n <= group.MaxRanks {
		list := make([]int, n)
		for i := range list {
			list[i] = i
		}
		return list, nil
	}
	var list []int
	for _, word := range strings.Split(text, ",") {
		n, err := strconv.Atoi(strings.TrimSpace(word))
		if err != nil || n < 0 || !strings.Contains(text, ",") || len(list) == group.MaxRanks {
			return nil, bad
		}
		list = append(list, n)
	}
	return list, nil
}

// division parses --attention for the given number of ranks; several is an example, for the error, of flags that select
// more than one rank.
func division(attention string, ranks int, several string) (plan.Division, error) {
	d, err := plan.ParseDivision(attention)
	switch {
	case err != nil || attention == "":
		return d, fmt.Errorf("--attention %s: want tp, dp or auto", attention)
	case d != plan.DivisionUnset && ranks < 2:
		return d, fmt.Errorf("--attention %s selects how ranks share attention, but there is only one rank; also "+
			"give %s, or omit --attention", attention, several)
	}
	return d, nil
}

// warnings returns a function that prints a warning on one line.
func warnings(cmd *cobra.Command) func(string) {
	return func(text string) { fmt.Fprintf(cmd.ErrOrStderr(), "warning: %s\n", text) }
}
