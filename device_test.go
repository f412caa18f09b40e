package sparrow

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"sparrow/internal/cuda/op"
	"sparrow/internal/device"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// machine returns the kernels of a machine whose GPU has the given memory. available is the error with which opening
// the GPU fails, or nil.
func machine(memory int64, available error) *kernel.Registry {
	p := cuda.H200
	p.MemoryBytes = memory
	return kernel.NewRegistry(cpu.Backends(), []kernel.Backend{{Name: "cuda", Hardware: "sm90",
		Available: func() error { return available },
		Open:      func(kernel.Options) (kernel.Device, error) { return op.On(cuda.OpenDetached(p)) },
	}}, ref.Backends())
}

// opened opens the device of a model and closes it. It returns the device's name, the warnings, and the resolved
// configuration.
func opened(t *testing.T, r *kernel.Registry, c Config) (name string, warned []string, out Config, err error) {
	t.Helper()
	p, err := readParts(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	c.Workers = 1
	c.Warn = func(text string) { warned = append(warned, text) }
	dev, out, err := openDevices(r, c.withDefaults(), p, nil)
	if err != nil {
		return "", warned, out, err
	}
	return dev.Hardware().Arch, warned, out, dev.Close()
}

// By default a GPU that can run the model is used, with the default settings of a GPU.
func TestAutoTakesTheGPU(t *testing.T) {
	for _, kernels := range []string{"", "auto", "cuda"} {
		name, warned, c, err := opened(t, machine(80<<30, nil), Config{Kernels: kernels})
		if err != nil || name != "sm90" || len(warned) != 0 {
			t.Fatalf("%q: %s, %v, %v", kernels, name, warned, err)
		}
		if c.StepTokens != plan.StepTokens(plan.SM90) || c.MaxRunning != gpuMaxRunning || c.Policy.KV != "fp8" ||
			c.reserved == 0 {
			t.Errorf("%q: %+v", kernels, c)
		}
		want := fmt.Sprintf("[--step-tokens %d --max-running %d --max-stall %v --kv %s --prefill %s]",
			plan.StepTokens(plan.SM90), gpuMaxRunning, gpuMaxStall, "fp8", "sparse-flat")
		if got := fmt.Sprint(c.defaults); got != want {
			t.Errorf("defaults %s, want %s", got, want)
		}
	}
	// "fp8" and "fp8-656" name the default layout and change nothing.
	for _, kv := range []string{"", "fp8", "fp8-656"} {
		_, _, c, err := opened(t, machine(80<<30, nil), Config{Policy: plan.Policy{KV: kv}})
		if err != nil || c.Policy.Prefill != "sparse-flat" || c.Policy.PrefillWhy == "" {
			t.Errorf("--kv %s: prefill %q (%q), %v", kv, c.Policy.Prefill, c.Policy.PrefillWhy, err)
		}
	}
	_, _, c, err := opened(t, machine(80<<30, nil), Config{StepTokens: 100, MaxRunning: 3, MaxStall: time.Second,
		Policy: plan.Policy{KV: "bf16"}})
	if err != nil || c.StepTokens != 100 || c.MaxRunning != 3 || c.Policy.KV != "bf16" || len(c.defaults) != 0 {
		t.Errorf("the requested settings: %+v, error %v", c, err)
	}
}

// The split of rows depends on the number of sequences that the user gave, not on a default. A setting for FP8 rows
// does not need --kv, because the device is first tried with its default layout.
func TestSplitFollowsWhatWasGiven(t *testing.T) {
	for _, c := range []Config{{}, {MaxRunning: 128}, {Policy: plan.Policy{SplitKeys: plan.SplitWhole}}} {
		c.Kernels = "cuda"
		_, _, out, err := opened(t, machine(80<<30, nil), c)
		if err != nil || out.Policy.Running != c.MaxRunning || out.Policy.SplitKeys != c.Policy.SplitKeys {
			t.Errorf("%d sequences, split %q: policy %+v, %v", c.MaxRunning, c.Policy.SplitKeys, out.Policy, err)
		}
	}
	c := Config{Policy: plan.Policy{Running: 3}}
	if err := c.Validate(); err == nil || !strings.Contains(err.Error(),
		"Policy.Running is 3, want it unset; set MaxRunning") {
		t.Errorf("Policy.Running is set: error %v", err)
	}
}

// Without a GPU the CPU runs the model, and there is no warning. If a GPU cannot be used, the warning names the GPU and
// the reason; if the user requested the GPU, that is an error.
func TestAutoFallsBack(t *testing.T) {
	if arch, warned, _, err := opened(t, machine(80<<30, nil), Config{Model: testmodel.V4(t)}); arch != "sm90" ||
		len(warned) > 0 {
		t.Errorf("DeepSeek-V4: %s, %v, %v", arch, warned, err)
	}
	if arch, warned, _, err := opened(t, machine(80<<30, nil), Config{Pack: true}); arch != "cpu" || len(warned) > 0 {
		t.Errorf("packed weights: %s, %v, %v", arch, warned, err)
	}
	absent := &cuda.Unavailable{Reason: "no library", Try: "install it", Absent: true}
	old := &cuda.Unavailable{Reason: "the driver is old", Try: "install another"}
	for _, c := range []struct {
		name     string
		r        *kernel.Registry
		c        Config
		says     string // expected text of the warning with AutoKernels
		refusals []string
	}{
		{"no GPU", machine(80<<30, absent), Config{}, "", []string{"no library"}},
		{"old driver", machine(80<<30, old), Config{}, "the driver is old", []string{"the driver is old"}},
		{"too small", machine(300<<20, nil), Config{}, "too little memory on the device",
			[]string{"the model needs", "MiB are free", "weights", "cache", "largest step", "operations", "graphs"}},
		{"exact cache", machine(80<<30, nil), Config{Policy: plan.Policy{KV: "f32"}}, "f32 on sm90",
			[]string{"f32 on sm90"}},
	} {
		arch, warned, got, err := opened(t, c.r, c.c)
		if err != nil || arch != "cpu" || got.StepTokens != plan.StepTokens(plan.CPU) ||
			got.Policy.KV != c.c.Policy.KV {
			t.Errorf("%s: %s, %+v, %v", c.name, arch, got, err)
		}
		if c.says == "" && len(warned) > 0 || c.says != "" && (len(warned) != 1 ||
			!strings.Contains(warned[0], c.says) || strings.Contains(warned[0], "\n")) {
			t.Errorf("%s: warned of %q, want one line with %q", c.name, warned, c.says)
		}
		c.c.Kernels = "cuda"
		_, warned, _, err = opened(t, c.r, c.c)
		if err == nil || len(warned) > 0 {
			t.Errorf("%s: --kernels cuda: %v, %v", c.name, err, warned)
			continue
		}
		for _, text := range c.refusals {
			if !strings.Contains(err.Error(), text) {
				t.Errorf("%s: --kernels cuda: error %v, want the text %q", c.name, err, text)
			}
		}
	}
	_, _, _, err := opened(t, machine(300<<20, nil), Config{Kernels: "cuda"})
	if !errors.Is(err, kernel.ErrMemory) {
		t.Errorf("too small: %v, want ErrMemory", err)
	}
}

// While loading, the progress reports the loaded bytes of the weights, up to all bytes.
func TestLoadingReportsBytes(t *testing.T) {
	var last, total int64
	e, err := Open(t.Context(), Config{Kernels: "cpu", OnLoad: func(done, of int64) {
		if done < last || done > of {
			t.Errorf("progress reports %d of %d bytes after %d bytes", done, of, last)
		}
		last, total = done, of
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close(t.Context())
	if last != total || total != e.Info().Memory.Weights {
		t.Errorf("progress ended at %d of %d bytes, the weights have %d bytes", last, total, e.Info().Memory.Weights)
	}
}

// If the caller gives no memory check, only the size of the weights is compared with the free memory.
func TestWeightsMustFit(t *testing.T) {
	p, err := readParts("")
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	for memory, fits := range map[int64]bool{100 << 20: false, 300 << 20: true} {
		dev, err := device.Open(machine(memory, nil), device.Request{Kernels: "cuda", Source: p.source})
		if fits != (err == nil) || !fits && (!errors.Is(err, kernel.ErrMemory) ||
			!strings.Contains(err.Error(), "weights 15.8 MiB")) {
			t.Errorf("%d bytes: %v", memory, err)
		}
		if err == nil {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}
