package verify_test

import (
	"bytes"
	"path/filepath"
	"testing"

	"sparrow/internal/model/family"
	"sparrow/internal/testkit/archive"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/plan"
	"sparrow/verify"
)

// A checkpoint with a DSpark head gives the logits, greedy tokens, drafts, confidences and acceptance lengths of the
// independent implementation, whole and in chunks. All of its tensors are used.
func TestDSpark(t *testing.T) {
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/deepseek_v4-dspark-1.tar.gz"), "deepseek_v4-dspark-1")
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	dev, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Precise: true, Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close(); src.Close() })
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(src.Skipped) != 0 || len(src.Config.Losses) != 0 {
		t.Errorf("skipped %q, losses %q; want none", src.Skipped, src.Config.Losses)
	}
	hw, err := plan.HardwareFor("cpu")
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
	if err != nil {
		t.Fatal(err)
	}
	for _, x := range []struct {
		golden       string
		cases, chunk int
	}{{dir, 4, 0}, {someCases(t, dir, []string{"long", "group"}), 2, 127}} {
		r, err := verify.Run(x.golden, m, verify.Options{Config: cfg, Chunk: x.chunk})
		if err != nil {
			t.Fatal(err)
		}
		if !r.Passed || len(r.Cases) != x.cases {
			var text bytes.Buffer
			r.Print(&text)
			t.Errorf("%d cases, out of tolerance:\n%s", len(r.Cases), &text)
		}
		for _, c := range r.Cases {
			if c.GreedyOf < 32 || !(c.MaxError > 0 && c.MaxError < 1e-4) {
				t.Errorf("case %s: %d greedy tokens, largest error %g; want 32 or more, within 1e-4", c.Name,
					c.GreedyOf, c.MaxError)
			}
			if b := c.Blocks; b == nil || b.Blocks < 10 || b.Drafts != 5*b.Blocks || b.Forced != 8 ||
				!(b.BaseError > 0 && b.ConfidenceError > 0 && b.ForcedError > 0) { // rounding differs from the oracle's
				t.Errorf("case %s: drafts %+v", c.Name, b)
			}
		}
	}
}

// Two ranks that share attention by heads or by requests make the same drafts as one device.
func TestDSparkOnRanks(t *testing.T) {
	if testing.Short() {
		t.Skip("as on one device")
	}
	dir := filepath.Join(archive.Unpack(t, "../testdata/oracle/deepseek_v4-dspark-1.tar.gz"), "deepseek_v4-dspark-1")
	each := map[plan.Division][]string{plan.ByHeads: {"short"}, plan.ByRequests: {"window"}}
	if *long {
		each = map[plan.Division][]string{plan.ByHeads: {"short", "group"}, plan.ByRequests: {"window", "long"}}
	}
	for how, cases := range each {
		src, err := family.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { src.Close() })
		m := onRanks(t, src, 2, how, func() (kernel.Device, error) {
			return kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Precise: true, Workers: 1})
		})
		hw, err := plan.HardwareFor("cpu")
		if err != nil {
			t.Fatal(err)
		}
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := verify.Run(someCases(t, dir, cases), m, verify.Options{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		if len(r.Cases) != len(cases) {
			t.Errorf("%v: %d cases, want %q", how, len(r.Cases), cases)
		}
		for _, c := range r.Cases {
			if len(c.Problems) > 0 || c.Blocks == nil {
				t.Errorf("%v: case %s: %q, drafts %+v", how, c.Name, c.Problems, c.Blocks)
			}
		}
	}
}
