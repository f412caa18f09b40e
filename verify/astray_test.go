package verify_test

import (
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/astray"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/verify"
)

// A judgment consists of a checkpoint, its cache, and the golden case that it is compared with.
type judgment struct {
	name, kv, golden string
	v4               bool
}

// Exact rows are compared with the independent implementation, and every fault of a device is found.
func TestExactRowsShowEveryFault(t *testing.T) {
	for _, j := range []judgment{{"deepseek_v32-1", "f32", "short", false}, {v4, "f32", "at_topk", true}} {
		golden := someCases(t, folder(j.name), []string{j.golden})
		dev := astray.On(onCPU(t, true), astray.None)
		m := loadOn(t, folder(j.name), dev)
		cfg := resolved(t, m, plan.Policy{KV: j.kv})
		for _, f := range append(astray.All(j.v4), astray.None) {
			dev.Fault, dev.Hits = f, 0
			r, err := verify.Run(golden, m, verify.Options{Config: cfg})
			if err != nil {
				t.Fatal(err)
			}
			judgedWith(t, j, f, dev.Hits, r)
		}
	}
}

// Rounded rows are compared with the reference, operation by operation, because rounding cannot hide a fault there. A
// head scaled by 1.01 and a window that is one short leave the logits within the tolerances.
func TestRoundedRowsShowEveryFault(t *testing.T) {
	for _, j := range []judgment{{"deepseek_v32-1", "fp8-656", "short", false}, {v4, "fp8", "at_topk", true}} {
		golden := someCases(t, folder(j.name), []string{j.golden})
		dev := astray.On(onCPU(t, false), astray.None)
		src, err := family.Open(folder(j.name))
		if err != nil {
			t.Fatal(err)
		}
		defer src.Close()
		m, err := src.Load(dev, nil)
		if err != nil {
			t.Fatal(err)
		}
		reference, err := verify.NewReference(src, dev)
		if err != nil {
			t.Fatal(err)
		}
		faults := append(astray.All(j.v4), astray.None)
		// Only the fault that the tolerances do not detect is tested for each family; the test of exact rows detects
		// the others.
		if !*long {
			faults = []astray.Fault{astray.HeadScaled} // TestJudgedByTheReference tests rows without a fault
			if j.v4 {
				faults = []astray.Fault{astray.WindowShort} // TestRanksByADevicesRules tests rows without a fault
			}
		}
		for _, f := range faults {
			dev.Fault, dev.Hits = f, 0
			r, err := verify.Run(golden, m, verify.Options{Config: resolved(t, m, plan.Policy{KV: j.kv}),
				Reference: reference})
			if err != nil {
				t.Fatal(err)
			}
			judgedWith(t, j, f, dev.Hits, r)
		}
	}
}

// judgedWith checks that a device without a fault passes, and that a device with a fault that affected some operation
// fails.
func judgedWith(t *testing.T, j judgment, f astray.Fault, hits int, r *verify.Report) {
	t.Helper()
	problems := strings.Join(r.Cases[0].Problems, "; ")
	t.Logf("%s, %s rows, %q in %d operations: %s", j.name, j.kv, f, hits, problems)
	switch {
	case f == astray.None && !r.Passed:
		t.Errorf("%s, %s rows: out of tolerance without a fault: %s", j.name, j.kv, problems)
	case f != astray.None && hits == 0:
		t.Errorf("%s, %s rows: no operation met the fault %q", j.name, j.kv, f)
	case f != astray.None && r.Passed:
		t.Errorf("%s, %s rows: %q passes", j.name, j.kv, f)
	}
}

func onCPU(t *testing.T, precise bool) kernel.Device {
	t.Helper()
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Precise: precise, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func loadOn(t *testing.T, dir string, dev kernel.Device) model.Model {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	return m
}

func resolved(t *testing.T, m model.Model, p plan.Policy) plan.Config {
	t.Helper()
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}
