package device

import (
	"runtime"
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/weight"
)

// Random weights in host memory are refused if they do not fit. Weights that a GPU generates in its own memory are not
// limited here, and weights in files are mapped.
func TestWeightsThatAreDrawnHaveToFit(t *testing.T) {
	shape := func(gib int) *family.Source {
		w, err := weight.FromShapes("drawn", []weight.Tensor{{Name: "w", DType: weight.U8, Shape: []int{gib, 1 << 30},
			Drawn: &weight.Distribution{}}})
		if err != nil {
			t.Fatal(err)
		}
		return &family.Source{Name: "drawn", Weights: w}
	}
	files, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	onCPU, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer onCPU.Close()
	onGPU, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer onGPU.Close()
	for _, c := range []struct {
		name string
		src  *family.Source
		dev  kernel.Device
		free int64
		want string
	}{
		{"enough", shape(7), onCPU, 8 << 30, ""},
		{"the limit itself, memory not known", shape(8), onCPU, 0, ""},
		{"more than the limit, memory not known", shape(9), onCPU, 0,
			"take 9.00 GiB; if the free memory is unknown, at most 8.00 GiB"},
		{"more than the limit, less than the free memory", shape(9), onCPU, 64 << 30, ""},
		{"more than the free memory", shape(2), onCPU, 2 << 30, "take 2.00 GiB; 2.00 GiB of memory are free, and at " +
			"most 7/8"},
		{"a GPU", shape(9), onGPU, 1 << 30, ""},
		{"files", files, onCPU, 1, ""},
	} {
		err := checkDrawn(c.src, c.dev, c.free)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// One core is left for the thread that serves the GPU, unless fewer threads were requested.
func TestThreadsThatComputeExperts(t *testing.T) {
	cores := runtime.GOMAXPROCS(4)
	defer runtime.GOMAXPROCS(cores)
	for asked, want := range map[int]int{-1: 3, 0: 3, 1: 1, 3: 3, 4: 3, 9: 3} {
		if got := hostWorkers(asked); got != want {
			t.Errorf("%d threads for %d asked on 4 cores, want %d", got, asked, want)
		}
	}
	runtime.GOMAXPROCS(1)
	if got := hostWorkers(0); got != 1 {
		t.Errorf("%d threads on one core, want 1", got)
	}
}

func TestHomesOfExperts(t *testing.T) {
	for text, want := range map[string]struct {
		homes ExpertHomes
		split bool
	}{"": {ExpertsAuto, false}, "auto": {ExpertsAuto, false}, "device": {ExpertsOnDevice, false},
		"split": {ExpertsSplit, true}, "host": {ExpertsOnHost, true}, "move": {ExpertsMove, true}} {
		if got, err := ParseExpertHomes(text); err != nil || got != want.homes || got.Split() != want.split {
			t.Errorf("%q: %q, split %t, error %v", text, got, got.Split(), err)
		}
	}
	if _, err := ParseExpertHomes("Split"); err == nil {
		t.Error("an unknown text is accepted")
	}
}

// A GPU with limits uses the named kernels, or else the first that can run: not those for Hopper, if the limits leave
// less than they need, and never those for a CPU.
func TestKernelsOfALimitedGPU(t *testing.T) {
	here, missing := func() error { return nil }, func() error { return kernel.ErrAbsent }
	backends := func(hopper, portable func() error) *kernel.Registry {
		return kernel.NewRegistry([]kernel.Backend{{Name: "cpu", Hardware: "cpu", Available: here},
			{Name: op.Name, Hardware: "sm90", Available: hopper},
			{Name: op.PortableName, Hardware: "sm90", Available: portable}})
	}
	small := kernel.Limits{Arch: "sm80"}
	memory := kernel.Limits{Memory: 1 << 30}
	for _, c := range []struct {
		name, asked      string
		limits           kernel.Limits
		hopper, portable func() error
		want, err        string
	}{
		{"any kernels", "", memory, here, here, op.Name, ""},
		{"auto", AutoKernels, memory, here, here, op.Name, ""},
		{"no Hopper", "", memory, missing, here, op.PortableName, ""},
		{"a smaller GPU", "", small, here, here, op.PortableName, ""},
		{"named kernels for a smaller GPU", op.Name, small, here, here, op.Name, ""},
		{"portable kernels", op.PortableName, memory, here, here, op.PortableName, ""},
		{"portable kernels that are missing", op.PortableName, memory, here, missing, "", "cuda-portable: "},
		{"no GPU", "", memory, missing, missing, "", "need a GPU that is at least as large: cuda: "},
		{"a CPU", "cpu", memory, here, here, "", "--kernels cpu cannot be combined with limits"},
	} {
		q := &Request{Kernels: c.asked, Options: kernel.Options{Limits: c.limits}}
		got, err := q.limitedKernels(backends(c.hopper, c.portable))
		if got != c.want || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) {
			t.Errorf("%s: kernels %q, want %q, error %v, want %q", c.name, got, c.want, err, c.err)
		}
	}
}
