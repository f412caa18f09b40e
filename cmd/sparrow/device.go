package main

import "github.com/spf13/pflag"

// deviceFlags say what computes, shared by every command that opens a device for a whole model.
type deviceFlags struct {
	kernels string
	gpu     int
	workers int
	pack    bool
}

func (d *deviceFlags) add(f *pflag.FlagSet) {
	addKernels(f, &d.kernels)
	f.IntVar(&d.gpu, "gpu", 0, "which GPU, counted from 0, where --kernels is for GPUs")
	f.IntVar(&d.workers, "workers", 0, "CPU threads; 0 means one for each core")
	f.BoolVar(&d.pack, "pack", false, "copy the weights at load to huge pages, which may help where pages of files "+
		"are small; takes as much memory again")
}

// addKernels adds --kernels alone, for a command that takes the rest of a device as it is.
func addKernels(f *pflag.FlagSet, kernels *string) {
	f.StringVar(kernels, "kernels", "cpu",
		"kernels to run: cpu (best of this machine), cuda (a Hopper GPU), ref, or a name from 'sparrow version'")
}
