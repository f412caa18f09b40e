package sparrow

import (
	"errors"
	"strings"
	"testing"

	"sparrow/internal/testmodel"
	"sparrow/kernel"
	"sparrow/model/placement"
)

// placedFor opens a GPU of that much memory for a model whose experts may be in host memory, and returns the choice.
func placedFor(t *testing.T, memory int64, c Config) (choice *placement.Choice, out Config, err error) {
	t.Helper()
	p, err := readParts(c.Model)
	if err != nil {
		t.Fatal(err)
	}
	defer p.source.Close()
	c.Workers, c.Kernels, c.StepTokens, c.MaxRunning = 1, "cuda", 64, 4
	dev, out, err := openDevices(machine(memory, nil), c.withDefaults(), p, nil)
	if err != nil {
		return nil, out, err
	}
	if _, err := dev.load(p.source, func(string) {}); err != nil {
		t.Error(err)
	}
	return dev.experts.Choice, out, dev.Close()
}

// What is left of a GPU's memory beside everything else is given to experts; a bound on it is kept, and experts that
// are chosen most come first. Both families load so.
func TestExpertsAreSplitByMemory(t *testing.T) {
	for _, dir := range []string{tinyFP8, testmodel.V4(t)} {
		all, c, err := placedFor(t, 80<<30, Config{Model: dir, Experts: ExpertsSplit})
		if err != nil || all.Resident != all.Experts || all.HostBytes != 0 || c.CacheTokens != splitCache {
			t.Fatalf("%s, much memory: %+v, %v", dir, all, err)
		}
		none, _, err := placedFor(t, 80<<30, Config{Model: dir, Experts: ExpertsOnHost, CacheTokens: 1024})
		if err != nil || none.Resident != 0 || none.HostBytes == 0 {
			t.Fatalf("%s, on the host: %+v, %v", dir, none, err)
		}
		// Of a GPU that is bounded between the two some experts are resident.
		low, high := int64(256<<20), int64(4<<30)
		var some *placement.Choice
		for range 40 {
			middle := (low + high) / 2
			got, _, err := placedFor(t, 80<<30, Config{Model: dir, Experts: ExpertsSplit, CacheTokens: 1024,
				DeviceMemory: middle})
			switch {
			case err != nil && !errors.Is(err, placement.ErrNoRoom):
				t.Fatal(err)
			case err != nil:
				low = middle
				continue
			case got.Resident == got.Experts:
				high = middle
				continue
			}
			some = got
			break
		}
		if some == nil || some.DeviceBytes+some.HostBytes < all.DeviceBytes {
			t.Errorf("%s: no bound splits the experts: %+v", dir, some)
		}
	}
}

func TestHomesThatAreRefused(t *testing.T) {
	if _, err := ParseExpertHomes("auto"); err == nil || !strings.Contains(err.Error(), "ask for split") {
		t.Errorf("auto: %v", err)
	}
	for c, want := range map[*Config]string{
		{Experts: "cellar"}:                       "supported are device, split and host",
		{Experts: ExpertsSplit, Ranks: 2}:         "experts in two memories run on one GPU",
		{Experts: ExpertsSplit, DeviceMemory: -1}: "DeviceMemory is -1",
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
	if _, _, err := openDevices(Registry(), c.withDefaults(), p, nil); !errors.Is(err, kernel.ErrUnsupported) ||
		!strings.Contains(err.Error(), "only a GPU") {
		t.Errorf("on a CPU: %v", err)
	}
	if _, _, err := placedFor(t, 80<<30, Config{Model: tinyFP8, Experts: ExpertsSplit, CacheTokens: 1024,
		DeviceMemory: 64 << 20}); !errors.Is(err, placement.ErrNoRoom) {
		t.Errorf("too little memory: %v", err)
	}
}
