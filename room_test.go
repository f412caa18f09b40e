package sparrow

import (
	"context"
	"errors"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"testing/fstest"

	"sparrow/internal/sysmem"
	"sparrow/kernel"
	"sparrow/spec"
)

// A cache that the machine cannot hold is refused with what was asked, what is there, and what would do.
func TestACacheBeyondTheMachineIsRefused(t *testing.T) {
	if sysmem.Total() == 0 {
		t.Skip("this system does not say how much memory it has")
	}
	for _, dir := range []string{"", speckV4(t)} {
		for _, tokens := range []int{2_000_000_000, 999_999_999_999, math.MaxInt} {
			_, err := assemble(context.Background(), Config{Model: dir, CacheTokens: tokens})
			if err == nil {
				t.Fatalf("model %q: a cache of %d tokens was opened", dir, tokens)
			}
			for _, want := range []string{strconv.Itoa(tokens), "GiB are there", "--cache-tokens"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("model %q, %d tokens: no %q in %q", dir, tokens, want, err)
				}
			}
			if regexp.MustCompile(`-[0-9]`).MatchString(err.Error()) {
				t.Errorf("a size is negative: %v", err)
			}
		}
	}
}

// The largest size that a refusal names fits, and one page more does not.
func TestTheLargestCacheFits(t *testing.T) {
	for _, dir := range []string{"", speckV4(t)} {
		e := still(t, Config{Model: dir, CacheTokens: 4096})
		go e.loop()
		cfg := e.info.Config
		pages := e.pagesIn(&cfg, e.cacheLimit())
		if pages < 16 {
			t.Fatalf("model %q: %d pages fit", dir, pages)
		}
		if err := e.fits(&cfg, pages*cfg.Page); err != nil {
			t.Errorf("model %q: %v", dir, err)
		}
		err := e.fits(&cfg, (pages+1)*cfg.Page)
		if err == nil || !strings.Contains(err.Error(), "--cache-tokens "+strconv.Itoa(pages*cfg.Page)) {
			t.Errorf("model %q: one page more: %v", dir, err)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// Drafts are verified in one step together with the token before them: a step too small for that is refused where drafts were insisted on, and
// told where they were not.
func TestDraftsNeedRoomInAStep(t *testing.T) {
	for _, c := range []struct{ drafts, step, most int }{{4, 1, 0}, {4, 4, 0}, {4, 5, 4}, {0, 1, 0}, {0, 3, 2}, {0, 64, spec.Most}} {
		cfg := Config{Model: drafty(t), CacheTokens: 1024, StepTokens: c.step}
		if c.drafts > 0 {
			cfg.Draft = drafts(t, c.drafts)
		}
		e, err := assemble(context.Background(), cfg)
		if c.drafts > 0 && c.most == 0 {
			if err == nil || !strings.Contains(err.Error(), "--step-tokens "+strconv.Itoa(c.step)) {
				t.Errorf("%+v: %v", c, err)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		if i := e.Info(); i.Drafts != c.most || (c.most == 0) != strings.Contains(i.NoDrafts, "--step-tokens") {
			t.Errorf("%+v: %d drafts, none because %q", c, i.Drafts, i.NoDrafts)
		}
		go e.loop()
		if _, err := e.Generate(context.Background(), Request{Tokens: tokens(1, 40), Sampling: greedy(), MaxTokens: 12, IgnoreEOS: true}); err != nil {
			t.Error(err)
		}
		if s := e.Stats(); (s.Drafted > 0) != (c.most > 0) {
			t.Errorf("%+v: %d tokens were drafted", c, s.Drafted)
		}
		if err := e.Close(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// No size makes opening panic: it is used, or refused with its name.
func TestAbsurdSizesAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"StepTokens":    {StepTokens: math.MaxInt},
		"MaxRunning":    {MaxRunning: math.MaxInt},
		"MaxQueue":      {MaxQueue: math.MaxInt},
		"PlanHistory":   {PlanHistory: math.MaxInt},
		"Workers":       {Workers: 1 << 20},
		"ContextTokens": {ContextTokens: math.MaxInt},
	} {
		for _, dir := range []string{"", speckV4(t)} {
			c.Model, c.CacheTokens = dir, 4096
			if _, err := assemble(context.Background(), c); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, model %q: %v", name, dir, err)
			}
		}
	}
}

// boxed is a device in a container that may have 300 MB.
type boxed struct {
	kernel.Device
	system sysmem.System
}

func (b boxed) MemoryFree() (free, total int64, err error) {
	return b.system.Available(), b.system.Total(), nil
}

// A container's limit bounds the cache, not the machine's memory: weights, cache, the largest step and what the
// process has taken already fit in it, and a cache that does not is refused.
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
	open := func(dir string, tokens int) (*Engine, error) {
		c := Config{Model: dir, CacheTokens: tokens}.withDefaults()
		p, err := readParts(dir)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := Registry().Open(c.Kernels, kernel.Options{Workers: 1})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = errors.Join(dev.Close(), p.source.Close()) })
		m, err := load(t.Context(), c, p, boxed{dev, system})
		if err != nil {
			t.Fatal(err)
		}
		return build(c, p, m)
	}
	for _, dir := range []string{"", speckV4(t)} {
		e, err := open(dir, 0)
		if err != nil {
			t.Fatal(err)
		}
		m := e.Info().Memory
		if all := m.Weights + m.Cache + m.States + m.Transient + used; all > limit-limit/10 {
			t.Errorf("model %q: %d bytes of %d: %+v", dir, all, limit, m)
		}
		if m.Cache < limit/10 && e.Info().CacheTokens < defaultContexts*e.model.Config().MaxPositions {
			t.Errorf("model %q: a cache of %d bytes", dir, m.Cache)
		}
		tokens := 4 * limit / int(m.Cache) * e.Info().CacheTokens
		if _, err := open(dir, tokens); err == nil || !strings.Contains(err.Error(), "the machine has 0.3") {
			t.Errorf("model %q: a cache of %d tokens: %v", dir, tokens, err)
		}
	}
}
