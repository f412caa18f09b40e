package main

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/pflag"

	"sparrow/internal/unit"
	"sparrow/kernel"
	"sparrow/plan"
)

// limitFlags limit the resources of a GPU, so that it behaves like a smaller one.
type limitFlags struct {
	pretend, limitMemory, limitShared, limitBus string
	limitSMs                                    int
}

func (f *limitFlags) add(s *pflag.FlagSet) {
	s.StringVar(&f.pretend, "pretend", "", "limit the GPU to the resources of a smaller device of 'sparrow explain "+
		"--hw', such as rtx4090: its kernels, memory, shared memory, multiprocessors and bus (docs/gpu.md)")
	s.StringVar(&f.limitMemory, "limit-memory", "", "maximum memory of the GPU that is allocated, such as 22G")
	s.StringVar(&f.limitShared, "limit-smem", "", "maximum shared memory of a block, such as 99K")
	s.IntVar(&f.limitSMs, "limit-sms", 0, "maximum number of multiprocessors of the GPU; 0 means all")
	s.StringVar(&f.limitBus, "limit-bus", "", "maximum bytes per second of copies between host and GPU, such as 25G")
}

// leastShared is the minimum value of --limit-smem in bytes: the shared memory that every kernel may use by default.
const leastShared = 48 << 10

// limits parses the flags. Single values replace those of the device named by --pretend.
func (f *limitFlags) limits() (kernel.Limits, error) {
	var l kernel.Limits
	if f.pretend != "" {
		hw, err := plan.HardwareFor(f.pretend)
		if err == nil && !hw.Arch.CUDA() {
			err = fmt.Errorf("kernels for %s do not run on NVIDIA GPUs; want a device such as rtx4090", hw.Arch)
		}
		if err != nil {
			return l, fmt.Errorf("--pretend %s: %w", f.pretend, err)
		}
		l = kernel.Limits{Profile: f.pretend, Arch: hw.Arch.String(), Memory: hw.MemoryBytes, Shared: hw.SmemOptin,
			SMs: hw.SMs, Bus: hw.Arch.BusRate()}
	}
	shared := int64(l.Shared)
	for _, x := range []struct {
		flag, text string
		least      int64
		to         *int64
	}{{"limit-memory", f.limitMemory, leastGPUMemory, &l.Memory},
		{"limit-smem", f.limitShared, leastShared, &shared}} {
		if x.text == "" {
			continue
		}
		n, err := parseBytes(x.text)
		if err == nil && n < x.least {
			err = fmt.Errorf("%q is less than %s; add a unit, such as 99K or 22G", x.text, unit.Bytes(x.least))
		}
		if err != nil {
			return l, fmt.Errorf("--%s: %w", x.flag, err)
		}
		*x.to = n
	}
	if f.limitBus != "" {
		n, err := strconv.ParseFloat(strings.TrimSuffix(strings.ToUpper(f.limitBus), "G"), 64)
		if err != nil || !strings.HasSuffix(strings.ToUpper(f.limitBus), "G") || !(n >= 0.01 && n < 1e6) {
			return l, fmt.Errorf("--limit-bus %s: want a rate in GB/s, such as 25G", f.limitBus)
		}
		l.Bus = int64(n * 1e9)
	}
	if l.Shared = int(min(shared, 1<<30)); f.limitSMs != 0 {
		l.SMs = f.limitSMs
	}
	if l.SMs < 0 {
		return l, fmt.Errorf("--limit-sms %d: want a number of multiprocessors, or 0 for all", l.SMs)
	}
	return l, nil
}
