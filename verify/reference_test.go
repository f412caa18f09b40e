package verify_test

import (
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/astray"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/plan"
	"sparrow/verify"
)

// runBeside verifies a checkpoint on a device with bf16 activations, compared with the reference. golden is the
// source of the golden outputs; nil means the folder of the weights.
func runBeside(t *testing.T, dir string, dev kernel.Device, p plan.Policy, chunk int,
	golden *string) *verify.Report {
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
	reference, err := verify.NewReference(src, dev)
	if err != nil {
		t.Fatal(err)
	}
	hw, err := model.Hardware(dev)
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	if golden == nil {
		golden = &dir
	}
	r, err := verify.Run(*golden, m, verify.Options{Config: cfg, Chunk: chunk, Reference: reference})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// faulty is a device that rounds as a GPU does, with sums in another order, and that computes one operation wrongly.
type faulty struct {
	kernel.Device
	fault string
}

// Do runs an operation wrongly if it is the faulty one, and passes all others to the device.
func (d *faulty) Do(op kernel.Op) error {
	switch a := op.(type) {
	case kernel.DenseArgs:
		return d.DenseAttend(a)
	case kernel.RouteArgs:
		return d.Route(a)
	case kernel.RootRouteArgs:
		return d.RouteRoot(a)
	}
	return d.Device.Do(op)
}

func (d *faulty) DenseAttend(a kernel.DenseArgs) error {
	if d.fault == "attention" {
		a.Scale *= 1.2
	}
	return d.Device.Do(a)
}

func (d *faulty) Route(a kernel.RouteArgs) error {
	if d.fault == "experts" {
		a.Groups, a.KeepGroups = 1, 1
	}
	return d.Device.Do(a)
}

func (d *faulty) RouteRoot(a kernel.RootRouteArgs) error {
	if d.fault == "experts" {
		a.Bias.Off += 4 // uses the bias of another expert
		a.Bias.Cols, a.Logits.Cols = a.Bias.Cols-1, a.Logits.Cols-1
	}
	return d.Device.Do(a)
}

// A device that differs from the reference only by the order of its sums passes in every layout. A device that computes
// an operation wrongly fails, and the message names the operation.
func TestJudgedByTheReference(t *testing.T) {
	if testing.Short() {
		t.Skip("-short: the reference computes on one core, in 15 minutes under the race detector")
	}
	t.Run("DeepSeek-V3.2", func(t *testing.T) {
		faults := map[string]string{"": "", "attention": "DenseArgs.Out: "}
		if *long {
			faults["experts"] = "RouteArgs.IDs"
			// Products with FP8 weights take most of the reference's time, and no fault concerns them.
			judged(t, "deepseek_v32-fp8-1", "fp8-656", map[string]string{"": ""})
			// TestRoundedRowsShowEveryFault tests this fault, too.
			faults["head"] = "% against the reference, want at most 0.8 %"
		}
		judged(t, "deepseek_v32-1", "fp8-656", faults)
	})
	t.Run("DeepSeek-V4", func(t *testing.T) {
		if !*long {
			t.Skip("make long runs it: TestRanksByADevicesRules judges its rows by the reference, too")
		}
		judged(t, v4, "fp8", map[string]string{"": "", "experts": "RootRouteArgs.IDs"})
	})
}

// judged verifies the short case of a checkpoint on devices with the given faults, and checks the message about each
// fault.
func judged(t *testing.T, name, kv string, faults map[string]string) {
	dir := folder(name)
	short := someCases(t, dir, []string{"short"})
	for fault, want := range faults {
		dev := rounded.On(&ref.Device{Rounded: true, Moved: true},
			kernel.Hardware{Arch: "sm90", Multiprocessors: 132, MemoryBytes: 141e9})
		var tried kernel.Device = &faulty{dev, fault}
		if fault == "head" {
			tried = astray.On(dev, astray.HeadScaled)
		}
		r := runBeside(t, dir, tried, plan.Policy{KV: kv}, 0, &short)
		var text strings.Builder
		if err := r.Print(&text); err != nil {
			t.Fatal(err)
		}
		problems := strings.Join(r.Cases[0].Problems, "; ")
		switch {
		case fault == "" && !r.Passed:
			t.Errorf("out of tolerance:\n%s", text.String())
		case fault != "" && !strings.Contains(problems, want):
			t.Errorf("a fault in %s: %s, want %q", fault, problems, want)
		}
	}
}
