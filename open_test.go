package sparrow

import (
	"context"
	"math"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"sparrow/engine"
	"sparrow/internal/sysmem"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

// A cache that does not fit the machine is refused with the requested size, the available size, and a size that fits.
func TestACacheBeyondTheMachineIsRefused(t *testing.T) {
	if sysmem.Total() == 0 {
		t.Skip("this system does not report its memory size")
	}
	for _, dir := range []string{"", testmodel.V4(t)} {
		for _, tokens := range []int{2_000_000_000, 999_999_999_999, math.MaxInt} {
			_, err := Open(context.Background(), Config{Model: dir, CacheTokens: tokens})
			if err == nil {
				t.Fatalf("model %q: a cache of %d tokens was opened", dir, tokens)
			}
			for _, want := range []string{strconv.Itoa(tokens), "GiB are available", "--cache-tokens"} {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("model %q, %d tokens: no %q in %q", dir, tokens, want, err)
				}
			}
			if regexp.MustCompile(`-[0-9]`).MatchString(err.Error()) {
				t.Errorf("the error suggests a negative size: %v", err)
			}
		}
	}
}

// No configured size makes Open panic: the size is used, or refused with an error that names the field.
func TestAbsurdSizesAreRefused(t *testing.T) {
	for name, c := range map[string]Config{
		"StepTokens":    {StepTokens: math.MaxInt},
		"MaxRunning":    {MaxRunning: math.MaxInt},
		"MaxQueue":      {MaxQueue: math.MaxInt},
		"PlanHistory":   {PlanHistory: math.MaxInt},
		"Workers":       {Workers: 1 << 20},
		"ContextTokens": {ContextTokens: math.MaxInt},
	} {
		for _, dir := range []string{"", testmodel.V4(t)} {
			c.Model, c.CacheTokens = dir, 4096
			if _, err := Open(context.Background(), c); err == nil || !strings.Contains(err.Error(), name) {
				t.Errorf("%s, model %q: %v", name, dir, err)
			}
		}
	}
}

// Weights that do not fit the machine are refused before they are copied; the error contains sizes and advice.
func TestPackingBeyondTheMachineIsRefused(t *testing.T) {
	if sysmem.Available() == 0 {
		t.Skip("this system does not report its free memory")
	}
	err := checkPacking(Config{Pack: true}, 1<<50)
	if err == nil || !strings.Contains(err.Error(), "1048576.0 GiB of weights") ||
		!strings.Contains(err.Error(), "without Pack (--pack)") {
		t.Errorf("packing a PiB: %v", err)
	}
	for _, c := range []struct {
		pack  bool
		bytes int64
	}{{true, 1 << 20}, {false, 1 << 50}} {
		if err := checkPacking(Config{Pack: c.pack}, c.bytes); err != nil {
			t.Errorf("pack %v, weights of %d bytes: error %v", c.pack, c.bytes, err)
		}
	}
}

// Unset fields have the values that the documentation states, and given values are kept.
func TestDefaultsAreAsDocumented(t *testing.T) {
	c := Config{}.withDefaults()
	if c.MaxQueue != 2048 || c.PlanHistory != 64 || c.Watchdog != time.Minute || c.Name != "sparrow-tiny" {
		t.Errorf("%d sequences wait, %d plans are kept, the watchdog waits %v, the name is %s", c.MaxQueue,
			c.PlanHistory, c.Watchdog, c.Name)
	}
	if defaultMaxRunning != 64 || gpuMaxRunning != 256 || defaultMaxStall != 100*time.Millisecond ||
		gpuMaxStall != 50*time.Millisecond || plan.StepTokens(plan.CPU) != 512 || plan.StepTokens(plan.SM90) != 8192 {
		t.Error("the defaults of a device are not those of the flags' help")
	}
	if engine.DefaultRecordBytes != 64<<20 || engine.DefaultTierWait != 500*time.Millisecond {
		t.Error("the defaults of the engine are not those of the flags' help")
	}
	given := Config{MaxQueue: 1, PlanHistory: 2, Watchdog: -1, Model: "a/m", MaxRunning: 3}.withDefaults()
	if given.MaxQueue != 1 || given.PlanHistory != 2 || given.Watchdog != -1 || given.Name != "m" ||
		given.Policy.Running != 3 {
		t.Errorf("%+v", given)
	}
}
