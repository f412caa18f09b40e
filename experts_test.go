package sparrow

import (
	"errors"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/device"
	"sparrow/internal/model/placement"
	"sparrow/internal/model/synth"
	"sparrow/internal/testkit/kept"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/plan"
)

// placedFor opens a GPU of 80 GiB for a model whose experts may be in host memory, and returns the choice. With loads
// it places the weights, too.
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

// With memory for all of them experts are on the device; with --experts host they are in host memory. Models of both
// families load.
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

// Where memory is bounded, the memory that everything else leaves is used for experts: some are on the device, and all
// of it fits.
func TestExpertsAreSplitByMemory(t *testing.T) {
	notUnderRace(t)
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
	defer src.Close()
	low, high := int64(256<<20), int64(8<<30) // too little for anything, and enough for all
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
	t.Errorf("no bound from %d to %d bytes splits the experts", low, high)
}

func TestHomesThatAreRefused(t *testing.T) {
	for c, want := range map[*Config]string{
		{Experts: "cellar"}:                                              "supported are device, split, host and auto",
		{Experts: ExpertsSplit, Ranks: 2}:                                "experts in two memories run on one GPU",
		{Experts: ExpertsSplit, DeviceMemory: -1}:                        "DeviceMemory is -1",
		{Experts: ExpertsAuto, Policy: plan.Policy{Deterministic: true}}: "an expert that moves is computed by other",
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
	for want, c := range map[string]Config{"no library": {}, "--pack copies the weights for a CPU": {Pack: true}} {
		c.Model, c.Experts = tinyFP8, ExpertsAuto
		if _, warned, _, err := opened(t, machine(80<<30, absent), c); !errors.Is(err, kernel.ErrUnsupported) ||
			!strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), "leave --experts out") ||
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
