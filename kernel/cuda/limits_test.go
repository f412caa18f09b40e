package cuda

import (
	"errors"
	"strings"
	"testing"

	"sparrow/kernel"
)

var rtx4090 = kernel.Limits{Profile: "rtx4090", Arch: "sm89", Memory: 24e9, Shared: 101376, SMs: 128, Bus: 25e9}

// A limited device has the smaller value of each of its limits and properties, and reports which limits are in effect
// and which cannot be reached.
func TestLimitsOfADevice(t *testing.T) {
	p, text, err := H200.limit(rtx4090)
	if err != nil || p.Hardware() != "sm89" || p.MemoryBytes != 24e9 || p.SharedOptinBytes != 101376 || p.SMs != 128 ||
		p.native() || !strings.HasSuffix(p.Name, "H200 as rtx4090") {
		t.Errorf("%+v, %v", p, err)
	}
	for _, want := range []string{"22.35 GiB of memory", "99.0 KiB of shared memory a block", "128 multiprocessors",
		"bus 25 GB/s"} {
		if !strings.Contains(text, want) {
			t.Errorf("%q lacks %q", text, want)
		}
	}
	p, text, err = H200.limit(kernel.Limits{Profile: "rtx5090", Arch: "sm120", SMs: 170, Memory: 32e9})
	if err != nil || p.Hardware() != "sm120" || p.SMs != 132 || p.SharedOptinBytes != H200.SharedOptinBytes ||
		!strings.Contains(text, "132 multiprocessors (170 was requested, but it has no more)") {
		t.Errorf("%+v, %q, %v", p, text, err)
	}
	if p, text, err = H200.limit(kernel.Limits{}); p != H200 || text != "" || err != nil {
		t.Errorf("without limits: %+v, %q, %v", p, text, err)
	}
	for _, l := range []kernel.Limits{{SMs: -1}, {Memory: -1}, {Arch: "sm75"}, {Arch: "gfx95"}} {
		if _, _, err := H200.limit(l); !errors.Is(err, ErrArgument) {
			t.Errorf("%+v gave %v", l, err)
		}
	}
}

// The kernels for Hopper are used only if the limits leave the architecture and the shared memory that they need.
func TestLimitsDecideTheTier(t *testing.T) {
	for _, c := range []struct {
		l    kernel.Limits
		want string
	}{
		{kernel.Limits{}, ""}, {kernel.Limits{Memory: 24e9, SMs: 66, Bus: 25e9}, ""},
		{kernel.Limits{Arch: "sm90", Shared: H200.SharedOptinBytes}, ""}, {rtx4090, "sm89 has no kernels of its own"},
		{kernel.Limits{Shared: 101376}, "a block has 99.0 KiB of shared memory"},
	} {
		if why := NeedsPortable(c.l); (why == "") != (c.want == "") || !strings.Contains(why, c.want) {
			t.Errorf("%+v: %q, want %q", c.l, why, c.want)
		}
	}
}

// Memory is counted and refused beyond the limit. The portable kernels are accepted with the shared memory of consumer
// cards and refused with less than they need.
func TestLimitedMemory(t *testing.T) {
	p, _, err := H200.limit(rtx4090)
	check(t, err)
	d := OpenDetached(p)
	d.limits.memory = 1 << 20
	if !d.Portable() {
		t.Error("a device limited to sm89 uses the kernels for Hopper")
	}
	a, err := d.Alloc(1 << 19)
	check(t, err)
	if free, total, err := d.MemoryFree(); free != 1<<19 || total != 1<<20 || err != nil {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	if _, err := d.Alloc(1<<19 + 1); !errors.Is(err, kernel.ErrMemory) {
		t.Errorf("beyond the limit: %v", err)
	}
	check(t, a.Free())
	b, err := d.Alloc(1 << 20)
	check(t, err)
	check(t, b.Free())
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatalf("99 KiB: %v", err)
	}
	check(t, k.Close())
	d.props.SharedOptinBytes = 64 << 10
	if _, err := d.LoadKernels(); !errors.Is(err, ErrArgument) || !strings.Contains(err.Error(), "portable_product") {
		t.Errorf("64 KiB: %v", err)
	}
}
