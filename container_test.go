package sparrow

import (
	"errors"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"sparrow/engine"
	"sparrow/internal/device"
	"sparrow/internal/sysmem"
	"sparrow/internal/testmodel"
	"sparrow/kernel"
)

// boxed is a device in a container with a memory limit of 300 MB.
type boxed struct {
	kernel.Device
	system sysmem.System
}

func (b boxed) MemoryFree() (free, total int64, err error) {
	return b.system.Available(), b.system.Total(), nil
}

// The cache is limited by the memory limit of the container, not by the memory of the machine: weights, cache, the
// largest step and the memory that the process already uses fit within the limit, and a larger cache is refused.
func TestACacheFitsItsContainer(t *testing.T) {
	const limit, used = 300_000_000, 40_000_000
	file := func(text string) *fstest.MapFile { return &fstest.MapFile{Data: []byte(text)} }
	system := sysmem.At(fstest.MapFS{
		"proc/meminfo":                     file("MemTotal: 24000000 kB\nMemAvailable: 20000000 kB\n"),
		"proc/self/mountinfo":              file("25 1 0:28 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"),
		"proc/self/cgroup":                 file("0::/box\n"),
		"sys/fs/cgroup/box/memory.max":     file(strconv.Itoa(limit)),
		"sys/fs/cgroup/box/memory.current": file(strconv.Itoa(used)),
	})
	open := func(dir string, tokens int) (*engine.Engine, error) {
		c := Config{Model: dir, CacheTokens: tokens}.withDefaults()
		p, err := readParts(dir)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := device.Registry().Open("cpu", kernel.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		c = c.onDevice(dev, p.source.Model)
		t.Cleanup(func() { _ = errors.Join(dev.Close(), p.source.Close()) })
		m, err := load(t.Context(), c, p, onDevice(boxed{dev, system}))
		if err != nil {
			t.Fatal(err)
		}
		return newCore(c, p, m, nil)
	}
	for _, dir := range []string{"", testmodel.V4(t)} {
		e, err := open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		m := e.Info().Memory
		if all := m.Weights + m.Cache + m.States + m.Arena + used; all > limit-limit/10 {
			t.Errorf("model %q: %d bytes of %d: %+v", dir, all, limit, m)
		}
		if m.Cache < limit/10 && e.Info().CacheTokens < 4*e.Info().ContextTokens {
			t.Errorf("model %q: a cache of %d bytes", dir, m.Cache)
		}
		tokens := 4 * limit / int(m.Cache) * e.Info().CacheTokens
		if _, err := open(dir, tokens); err == nil || !strings.Contains(err.Error(), "the machine has 0.3") {
			t.Errorf("model %q: a cache of %d tokens: %v", dir, tokens, err)
		}
	}
}
