package placement

import (
	"errors"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/cost"
	"sparrow/internal/model/usage"
)

const gib = 1 << 30

// onlyHost returns a machine whose device needs no time to read its own experts.
func onlyHost() cost.Machine {
	m := cost.H200()
	m.GPU = cost.GPU{}
	return m
}

// flash returns the inputs for DeepSeek-V4-Flash: 43 layers and a drafting layer of 256 experts, of which a row
// chooses 6.
func flash(device, host int64) Ask {
	layers := make([]int, 44)
	for l := range layers {
		layers[l] = 256
	}
	return Ask{Layers: layers, Chosen: 6, Bytes: 13_369_344, Format: cost.E2M1, Device: device, Host: host,
		Machine: onlyHost(), Chunk: 8192}
}

// As many experts as fit stay on the device, equally many of each layer. For decodes the CPU computes the other
// experts, and for prompts they are streamed. The result is the same every time.
func TestChooseEvenly(t *testing.T) {
	a := flash(120*gib, 120*gib)
	c, err := Choose(a)
	if err != nil {
		t.Fatal(err)
	}
	want := int(a.Device / a.Bytes)
	if c.Experts != 44*256 || c.Resident != want || c.DeviceBytes > a.Device || c.HostBytes > a.Host ||
		c.DeviceBytes+c.HostBytes/2 != int64(c.Experts)*a.Bytes { // host experts have one copy for each method
		t.Errorf("%+v, want %d resident", c, want)
	}
	if err := c.Placement.Check(44, 256); err != nil {
		t.Error(err)
	}
	for l := range a.Layers {
		if n := len(c.Placement.Resident(l)); n != want/44 && n != want/44+1 {
			t.Errorf("layer %d has %d experts on the device, want %d or one more", l, n, want/44)
		}
		for e := range c.Placement.Decode[l] {
			d, p := c.Placement.Decode[l][e], c.Placement.Prefill[l][e]
			if d == Fetched || p == Computed || (d == Resident) != (p == Resident) {
				t.Fatalf("layer %d, expert %d: %v and %v", l, e, d, p)
			}
		}
	}
	text := strings.Join(c.Reasons, "\n")
	for _, part := range []string{"85.6 %", "12.8 MiB", "spread evenly", "decode: experts in host memory are computed",
		"80 GB/s (e2m1, 16 cores) + 4.8 us = 171 us", "54 GB/s + 17 us = 265 us", "streamed to the device. 192 rows"} {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
	again, err := Choose(a)
	if err != nil || !reflect.DeepEqual(c, again) {
		t.Errorf("another answer to the same question: %v", err)
	}
}

// For decodes of many rows the CPU computes some of the experts in host memory and the others are copied over the bus,
// the same number in every layer. The copied experts have one copy in host memory.
func TestChooseBothWays(t *testing.T) {
	a := flash(120*gib, 120*gib)
	a.Rows = 32
	c, err := Choose(a)
	if err != nil || c.Decode != Computed || c.Prefill != Fetched || c.Beside < 0.3 || c.Beside > 0.5 {
		t.Fatalf("%+v, %v", c, err)
	}
	a.GPU = cost.H200().GPU // this device needs time to read its own experts
	if c, err = Choose(a); err != nil || c.Beside < 0.2 || c.Beside > 0.35 {
		t.Fatalf("beside a device that reads its own: %+v, %v", c, err)
	}
	bytes := int64(0)
	for l := range a.Layers {
		fetched, onHost := 0, c.Placement.OnHost(l)
		for _, e := range onHost {
			if bytes += a.Bytes; c.Placement.Decode[l][e] == Fetched {
				fetched++
			} else {
				bytes += a.Bytes
			}
		}
		if want := c.Beside * float64(len(onHost)); math.Abs(float64(fetched)-want) > 1 {
			t.Errorf("layer %d: %d of %d experts are fetched for decodes, want %.1f", l, fetched, len(onHost), want)
		}
	}
	if c.HostBytes != bytes || !strings.Contains(strings.Join(c.Reasons, "\n"), "both end at the same time") {
		t.Errorf("%d bytes on the host, want %d; %v", c.HostBytes, bytes, c.Reasons)
	}
	a.Rows = 4
	if c, err := Choose(a); err != nil || c.Beside != 0 {
		t.Errorf("few rows: %+v, %v", c, err)
	}
}

// If the drafting layer is not used, its experts are moved off the device first.
func TestUnusedExperts(t *testing.T) {
	a := flash(120*gib, 120*gib)
	a.Unused = 1
	c, err := Choose(a)
	if err != nil || len(c.Placement.Resident(43)) != 0 || len(c.Placement.Resident(0)) < c.Resident/43 {
		t.Errorf("%d of the last layer and %d of the first are on the device: %+v, %v",
			len(c.Placement.Resident(43)), len(c.Placement.Resident(0)), c, err)
	}
	a.Device = 150 * gib
	if c, err := Choose(a); err != nil || c.Resident != c.Experts || c.Covered != 1 {
		t.Errorf("with room for all: %+v, %v", c, err)
	}
}

// Layers without experts, such as drafting layers that were left out, do not change the placement of the other layers.
func TestLayersWithoutExperts(t *testing.T) {
	a := flash(120*gib, 120*gib)
	a.Rows = 32
	last := len(a.Layers) - 1
	b := a
	a.Layers, b.Layers = a.Layers[:last], append(slices.Clone(a.Layers[:last]), 0)
	x, err := Choose(a)
	y, err2 := Choose(b)
	if err != nil || err2 != nil || x.Resident != y.Resident || x.Beside != y.Beside || x.Beside == 0 ||
		len(y.Placement.Decode[last]) != 0 {
		t.Errorf("without the layer: %+v, %v; with it: %+v, %v", x, err, y, err2)
	}
}

// If two copies do not fit, or one method was requested, experts get the method that slows down the other phase less.
func TestOneCopy(t *testing.T) {
	small, same := flash(120*gib, 30*gib), flash(120*gib, 120*gib)
	same.OneMethod = true
	for _, a := range []Ask{small, same} {
		c, err := Choose(a)
		if err != nil || c.Decode != Fetched || c.Prefill != Fetched || c.HostBytes > a.Host ||
			c.DeviceBytes+c.HostBytes != int64(c.Experts)*a.Bytes {
			t.Errorf("%+v, %v", c, err)
		}
	}
	slow := same
	slow.Bus.Rate /= 10
	slow.Chunk = 512
	slow.Rows = 32 // also then no expert is fetched beside the others
	if c, err := Choose(slow); err != nil || c.Decode != Computed || c.Prefill != Computed || c.Beside != 0 {
		t.Errorf("with a slow bus: %+v, %v", c, err)
	}
}

// One copy of an expert that serves both methods halves the host memory, so both methods are used on a host that has no
// room for two copies. Experts that are fetched in decodes, too, are not counted twice.
func TestOneCopyForBothMethods(t *testing.T) {
	a := flash(120*gib, 30*gib)
	a.Shared = true
	for _, rows := range []int{1, 32} {
		a.Rows = rows
		c, err := Choose(a)
		if err != nil || c.Decode != Computed || c.Prefill != Fetched || !c.Placement.Shared ||
			(c.Beside > 0) != (rows > 1) ||
			c.HostBytes != int64(c.Experts-c.Resident)*a.Bytes ||
			!strings.Contains(strings.Join(c.Reasons, "\n"), "in one copy for both methods") {
			t.Errorf("%d rows: %+v, %v", rows, c, err)
		}
	}
	a.OneMethod = true
	if c, err := Choose(a); err != nil || c.Decode != c.Prefill || c.Placement.Shared {
		t.Errorf("one method: %+v, %v", c, err)
	}
}

// With few cores experts are fetched over the bus, because that is faster than computing them on the CPU.
func TestFewCoresFetch(t *testing.T) {
	a := flash(120*gib, 120*gib)
	a.CPU.Cores = 4
	if c, err := Choose(a); err != nil || c.Decode != Fetched || c.Prefill != Fetched {
		t.Errorf("%+v, %v", c, err)
	}
	a.Bus.Rate = 1e3
	if c, err := Choose(a); err != nil || c.Decode != Computed {
		t.Errorf("with a slow bus: %+v, %v", c, err)
	}
}

// The most frequently chosen experts stay on the device, in whichever layer they are.
func TestChooseByUse(t *testing.T) {
	u := usage.New("x", 3, 4, 2)
	u.Add(0, []uint64{1, 1, 50, 48})
	u.Add(2, []uint64{100, 0, 0, 0})
	a := Ask{Layers: []int{4, 0, 4}, Chosen: 2, Bytes: 10, Device: 39, Host: 100, Machine: onlyHost(),
		Chunk: 8, Usage: u}
	c, err := Choose(a)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := fmt.Sprint(c.Placement.Resident(0), c.Placement.Resident(2)), "[2 3] [0]"; got != want {
		t.Errorf("on the device %s, want %s", got, want)
	}
	if c.Resident != 3 || c.Covered < 0.9 || c.Covered >= 1 {
		t.Errorf("%+v", c)
	}
}

func TestEverythingFits(t *testing.T) {
	c, err := Choose(flash(200*gib, 0))
	if err != nil || c.Resident != c.Experts || c.HostBytes != 0 || c.Covered != 1 || len(c.Reasons) != 1 {
		t.Errorf("%+v, %v", c, err)
	}
	c, err = Choose(flash(0, 200*gib))
	if err != nil || c.Resident != 0 || c.Covered != 0 {
		t.Errorf("without memory for experts on the device: %+v, %v", c, err)
	}
}

func TestNothingFits(t *testing.T) {
	for _, c := range []struct {
		device, host int64
		want         string
	}{
		{40 * gib, 64 * gib, "36.26 GiB are missing"},
		{-3 * gib, 200 * gib, "needs 3.00 GiB more device memory than there is"},
		{-3 * gib, 2 * gib, "needs 3.00 GiB more device memory than there is"},
	} {
		_, err := Choose(flash(c.device, c.host))
		if !errors.Is(err, ErrNoRoom) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%d and %d bytes: %v, want %q", c.device, c.host, err, c.want)
		}
	}
}

// If both phases use one method, it is the one with which decodes and prompts together lose less: the product of their
// times is the smaller one.
func TestTheOneMethodLosesLess(t *testing.T) {
	seen := map[Method]int{}
	for _, bus := range []float64{0.1, 0.3, 1, 3} {
		for _, chunk := range []int{64, 512, 2048, 8192, 32768} {
			a := flash(gib, 120*gib)
			a.Layers, a.Chunk, a.OneMethod = a.Layers[:1], chunk, true
			a.Bus.Rate *= bus
			both := a
			both.OneMethod = false
			free, err := Choose(both)
			if err != nil {
				t.Fatal(err)
			}
			c, err := Choose(a)
			if err != nil || c.Decode != c.Prefill {
				t.Fatalf("%+v, %v", c, err)
			}
			if free.Decode == free.Prefill {
				continue
			}
			product := func(m Method) float64 {
				return a.TimesOf(1, false).of(m) * a.TimesOf(a.promptRows(), true).of(m)
			}
			other := Computed + Fetched - c.Decode
			if seen[c.Decode]++; product(c.Decode) > product(other) {
				t.Errorf("bus %v, chunk %d: %v, but the product of times is %v, and %v with %v", bus, chunk, c.Decode,
					product(c.Decode), product(other), other)
			}
		}
	}
	if seen[Computed] == 0 || seen[Fetched] == 0 {
		t.Errorf("not both methods were chosen: %v", seen)
	}
}

// If all experts must be in host memory and do not fit there, the error names host memory, also for a device without
// memory for experts.
func TestTheMissingMemoryIsNamed(t *testing.T) {
	for device, host := range map[int64]bool{-1: false, 0: true, 1: true} {
		if _, err := Choose(flash(device, gib)); !errors.Is(err, ErrNoRoom) || errors.Is(err, ErrHost) != host {
			t.Errorf("%d bytes of device memory: %v", device, err)
		}
	}
}
