package sparrow

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/device"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/kept"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// placedFor opens a GPU of 80 GiB for a model whose experts may be in host memory, and returns the placement of the
// experts. If loads is true, it also loads the weights.
func placedFor(t *testing.T, c Config, loads bool) (choice *placement.Choice, out Config, err error) {
	t.Helper()
	p, err := c.parts()
	if err != nil {
		t.Fatal(err)
	}
	if c.Source == nil {
		defer p.source.Close()
	}
	c.Workers, c.Kernels, c.StepTokens, c.MaxRunning = 1, "cuda", 64, 4
	r := machine(80<<30, nil)
	kept.Figures(t, r, "cuda", cost.H200())
	dev, out, err := openDevices(r, c.withDefaults(), p, nil)
	if err != nil {
		return nil, out, err
	}
	if loads {
		if _, err := dev.load(p.source, func(string) {}); err != nil {
			t.Error(err)
		}
	}
	return dev.experts.Choice, out, dev.Close()
}

// If the device has memory for all experts, they are placed on the device; with --experts host all are in host memory.
// Models of both families load.
func TestExpertsAreOnOneSide(t *testing.T) {
	notUnderRace(t)
	for _, dir := range []string{tinyFP8, testmodel.V4(t)} {
		all, c, err := placedFor(t, Config{Model: dir, Experts: ExpertsSplit}, true)
		if err != nil || all.Resident != all.Experts || all.HostBytes != 0 || c.CacheTokens != device.SplitCache {
			t.Fatalf("%s, much memory: %+v, %v", dir, all, err)
		}
		none, _, err := placedFor(t, Config{Model: dir, Experts: ExpertsOnHost, CacheTokens: 1024}, true)
		if err != nil || none.Resident != 0 || none.HostBytes == 0 {
			t.Fatalf("%s, on the host: %+v, %v", dir, none, err)
		}
	}
}

// If device memory is limited, experts get the memory that everything else leaves: some are on the device, and the
// total fits.
func TestExpertsAreSplitByMemory(t *testing.T) {
	notUnderRace(t)
	src := mini(t)
	// In bytes of GPU memory, low is too little for any expert and high is enough for all experts.
	low, high := int64(256<<20), int64(8<<30)
	for range 12 {
		middle := (low + high) / 2
		c, _, err := placedFor(t, Config{Source: src, Experts: ExpertsSplit, CacheTokens: 1024, DeviceMemory: middle},
			false)
		switch {
		case errors.Is(err, placement.ErrNoRoom):
			low = middle
		case err != nil:
			t.Fatal(err)
		case c.Resident == c.Experts:
			high = middle
		default:
			if c.DeviceBytes == 0 || c.DeviceBytes > middle || c.HostBytes == 0 {
				t.Errorf("%d bytes of %d on the device, %d on the host", c.DeviceBytes, middle, c.HostBytes)
			}
			return
		}
	}
	t.Errorf("no memory limit from %d to %d bytes splits the experts", low, high)
}

// mini returns a model of 548 million random weights, most of them experts.
func mini(t *testing.T) *family.Source {
	t.Helper()
	text, err := synth.PresetConfig("v32-mini")
	if err != nil {
		t.Fatal(err)
	}
	shape, err := synth.New("v32-mini", text, synth.Options{DType: synth.FP8})
	if err != nil {
		t.Fatal(err)
	}
	src, err := shape.Dummy("v32-mini")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return src
}

// By default all experts are on the GPU if the model fits, otherwise as many experts as fit; a message states how many
// experts are on the GPU. With ExpertsOnDevice, a GPU that is too small for all experts is refused.
func TestExpertsByDefault(t *testing.T) {
	notUnderRace(t)
	src := mini(t)
	open := func(memory int64, c Config) (devices, Config, error) {
		c.Source, c.Workers, c.StepTokens, c.MaxRunning, c.CacheTokens = src, 1, 64, 4, 1024
		r := machine(memory, nil)
		kept.Figures(t, r, "cuda", cost.H200())
		dev, out, err := openDevices(r, c.withDefaults(), &parts{source: src}, nil)
		if err == nil {
			if err := dev.Close(); err != nil {
				t.Error(err)
			}
		}
		return dev, out, err
	}
	dev, c, err := open(80<<30, Config{})
	if err != nil || dev.experts != nil || c.reserved == 0 || !strings.Contains(c.placed, "all on the GPU: the model") {
		t.Fatalf("much memory: %q, %d bytes reserved, %v", c.placed, c.reserved, err)
	}
	low, high := int64(256<<20), int64(8<<30)
	for range 12 {
		middle := (low + high) / 2
		dev, c, err := open(middle, Config{})
		switch {
		case err != nil:
			t.Fatal(err)
		case dev.Hardware().Arch == "cpu":
			if low = middle; c.placed != "" {
				t.Errorf("on the CPU: %q", c.placed)
			}
			continue
		case dev.experts == nil:
			high = middle
			continue
		}
		x := dev.experts.Choice
		want := fmt.Sprintf("%d of %d on the GPU, the others in host memory, which takes ", x.Resident, x.Experts)
		if x.Resident == x.Experts || c.reserved != 0 || !strings.HasPrefix(c.placed, want) ||
			!strings.Contains(c.placed, "the model needs ") || !strings.HasSuffix(c.placed, "(--experts auto)") {
			t.Errorf("%+v: %q, want it to begin with %q", x, c.placed, want)
		}
		if _, _, err := open(middle, Config{Experts: ExpertsOnDevice, Kernels: "cuda"}); !errors.Is(err,
			kernel.ErrMemory) || errors.Is(err, placement.ErrNoRoom) {
			t.Errorf("on the device alone: %v", err)
		}
		dev, c, err = open(80<<30, Config{DeviceMemory: middle})
		if err != nil || dev.experts == nil || !strings.Contains(c.placed, "--gpu-memory") {
			t.Errorf("with a memory limit of %d bytes: %q, %v", middle, c.placed, err)
		}
		return
	}
	t.Errorf("no GPU of %d to %d bytes has some of the experts", low, high)
}

// If the host has too little memory for the experts that are not on the GPU, every token would read from the disk.
// Therefore Open fails with an error that contains the sizes.
func TestHostTooSmallForExperts(t *testing.T) {
	src := mini(t)
	ask := placement.Ask{Layers: []int{4}, Bytes: 1 << 30, Device: 1 << 30, Host: 2 << 30}
	_, err := placement.Choose(ask)
	_, err = device.Open(machine(80<<30, nil), device.Request{Source: src,
		Fits: func(kernel.Device, kernel.Member) error { return err },
		Warn: func(text string) { t.Errorf("warned of %q", text) }})
	if !errors.Is(err, placement.ErrHost) || !strings.Contains(err.Error(), "1.00 GiB are missing") ||
		!strings.Contains(err.Error(), "--kernels cpu") {
		t.Errorf("%v", err)
	}
}

func TestHomesThatAreRefused(t *testing.T) {
	for c, want := range map[*Config]string{
		{Experts: "cellar"}:                       "want auto, device, split, host or move",
		{Experts: ExpertsSplit, Ranks: 2}:         "experts in two memories need a single GPU",
		{Experts: ExpertsSplit, DeviceMemory: -1}: "DeviceMemory is -1",
		{Experts: ExpertsMove, Policy: plan.Policy{Deterministic: true}}: "a moved expert is computed " +
			"with other rounding",
	} {
		if err := c.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%+v: %v, want %q", c.Experts, err, want)
		}
	}
	p, err := readParts(tinyFP8)
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	c := Config{Model: tinyFP8, Experts: ExpertsSplit, Kernels: "cpu", Workers: 1}
	if _, _, err := openDevices(device.Registry(), c.withDefaults(), p, nil); !errors.Is(err, kernel.ErrUnsupported) ||
		!strings.Contains(err.Error(), "only a GPU") {
		t.Errorf("on a CPU: %v", err)
	}
	absent := &cuda.Unavailable{Reason: "no library", Try: "install it", Absent: true}
	for want, c := range map[string]Config{"no library": {}, "--pack applies to the CPU only": {Pack: true}} {
		c.Model, c.Experts = tinyFP8, ExpertsMove
		if _, warned, _, err := opened(t, machine(80<<30, absent), c); !errors.Is(err, kernel.ErrUnsupported) ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "omit --experts") ||
			len(warned) > 0 {
			t.Errorf("%v, warned of %q; want %q", err, warned, want)
		}
	}
	if _, _, err := placedFor(t, Config{Model: tinyFP8, Experts: ExpertsSplit, CacheTokens: 1024,
		DeviceMemory: 64 << 20}, false); !errors.Is(err, placement.ErrNoRoom) ||
		!strings.Contains(err.Error(), "--cache-tokens") {
		t.Errorf("too little memory: %v", err)
	}
}
