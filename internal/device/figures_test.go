package device_test

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/cuda/op"
	"sparrow/internal/device"
	"sparrow/internal/kv/tier"
	"sparrow/internal/model/family"
	"sparrow/internal/model/placement"
	"sparrow/internal/testkit/kept"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
)

// A machine that is not in the table uses its saved figures and names their file. If the machine cannot be measured,
// the figures of the table are used with a warning.
func TestKeptFiguresOfAMachine(t *testing.T) {
	r := kernel.NewRegistry(cpu.Backends(), []kernel.Backend{{Name: "other", Hardware: "sm90",
		Available: func() error { return nil },
		Open: func(kernel.Options) (kernel.Device, error) {
			p := cuda.H200
			p.Name = "another GPU"
			return op.On(cuda.OpenDetached(p))
		}}})
	want := cost.H200()
	want.CPU.Cores, want.CPU.Stream, want.Bus.Rate = 1, 77e3, 25e3
	dev, cores := kept.Figures(t, r, "other", want)
	got, source := device.FiguresOf(r, dev, cores, 1)
	if got.CPU != want.CPU || got.Bus != want.Bus ||
		!strings.Contains(source, "another GPU, 1 cores of") || !strings.Contains(source, "saved in") {
		t.Errorf("%+v and %+v from %q; want %+v and %+v", got.CPU, got.Bus, source, want.CPU, want.Bus)
	}
	// In this case no figures are saved, and the registry has no CPU kernels, so that no figures can be measured.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	want = cost.H200()
	want.CPU.Cores = 1
	got, source = device.FiguresOf(kernel.NewRegistry(), dev, cores, 1)
	if got.CPU != want.CPU || got.Bus != want.Bus || !strings.Contains(source, "could not be measured") {
		t.Errorf("%+v and %+v from %q; want those of the table", got.CPU, got.Bus, source)
	}
}

// Servers that compute experts in different ways do not share pages in cache tiers.
func TestPlacementIsPartOfThePagesIdentity(t *testing.T) {
	weights := tier.Fingerprint{1, 2, 3}
	of := func(p *placement.Placement, movable bool) tier.Fingerprint {
		return (&device.PlacedExperts{Placed: family.Placed{Placement: p, Movable: movable}}).Identity(weights)
	}
	computed, fetched := placement.Split(2, 4, 0.5, placement.Computed, placement.Computed),
		placement.Split(2, 4, 0.5, placement.Computed, placement.Fetched)
	seen := map[tier.Fingerprint]bool{(*device.PlacedExperts)(nil).Identity(weights): true}
	if !seen[weights] {
		t.Error("without a placement the identity is not that of the weights")
	}
	prompts := placement.Split(2, 4, 0.5, placement.Fetched, placement.Computed)
	for _, id := range []tier.Fingerprint{of(computed, false), of(fetched, false), of(prompts, false),
		of(computed, true)} {
		if seen[id] {
			t.Error("two placements have equal identities")
		}
		seen[id] = true
	}
	if of(placement.Split(2, 4, 0.5, placement.Fetched, placement.Fetched), false) != weights {
		t.Error("fetched experts give results bitwise equal to resident experts, but the identity differs")
	}
	if of(computed, true) != of(fetched, true) || of(computed, false) != of(placement.Uniform(2, 4, 0.5), false) {
		t.Error("equal placements have different identities")
	}
	// A change of an identity would make all stored pages of a placement useless.
	for want, id := range map[string]tier.Fingerprint{"32849f1104a70887": of(prompts, false),
		"a61815939365298d": of(computed, true)} {
		if got := fmt.Sprintf("%x", id[:8]); got != want {
			t.Errorf("identity %s, want %s", got, want)
		}
	}
	if weights != (tier.Fingerprint{1, 2, 3}) {
		t.Error("the weights' own fingerprint was changed")
	}
}
