package dsa_test

import (
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/astray"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

func ofSparse(op kernel.Op) bool { _, ok := op.(kernel.SparseArgs); return ok }
func ofDense(op kernel.Op) bool  { _, ok := op.(kernel.DenseArgs); return ok }

// selfTestFaults lists faults of a device and the self-test's messages about them.
var selfTestFaults = []struct {
	fault astray.Fault
	only  func(kernel.Op) bool
	want  string
}{
	{astray.None, nil, ""},
	{astray.WrongKey, nil, "a stable sort of the scores selects key"},
	{astray.KeyDropped, ofSparse, "sparse attention has relative L2 error"},
	{astray.KeyDropped, ofDense, "sparse attention has relative L2 error"},
	{astray.HeadScaled, ofSparse, "dense attention"},
	{astray.HeadScaled, ofDense, "dense attention"},
	{astray.LastRow, ofSparse, "self-test"},
	{astray.StalePage, nil, "self-test"},
}

// The self-test passes on every kind of device, checkpoint and layout, and finds planted faults.
func TestSelfTest(t *testing.T) {
	sm90 := kernel.Hardware{Arch: "sm90", Multiprocessors: 132, MemoryBytes: 141e9}
	for _, c := range []struct {
		name        string
		dev         func() (kernel.Device, error)
		checkpoints []string
		kv          []string
	}{
		{"cpu", func() (kernel.Device, error) {
			return kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
		}, []string{"deepseek_v32-1", "deepseek_v32-fp8-1", "glm_moe_dsa-1"},
			[]string{"f32", "bf16", "fp8-656", "fp8-576"}},
		{"rounded", func() (kernel.Device, error) { return rounded.On(&ref.Device{Rounded: true}, sm90), nil },
			[]string{"deepseek_v32-fp8-1"}, []string{"fp8-656"}},
	} {
		for _, name := range c.checkpoints {
			src, err := family.Open("../../../testdata/oracle/" + name)
			if err != nil {
				t.Fatal(err)
			}
			inner, err := c.dev()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { inner.Close(); src.Close() })
			dev := astray.On(inner, astray.None)
			m, err := src.Load(dev, nil)
			if err != nil {
				t.Fatal(err)
			}
			hw, err := model.Hardware(dev)
			if err != nil {
				t.Fatal(err)
			}
			for _, kv := range c.kv {
				cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: kv})
				if err != nil {
					t.Fatal(err)
				}
				for _, f := range selfTestFaults {
					dev.Fault, dev.Only, dev.Hits = f.fault, f.only, 0
					err := m.(model.SelfTester).SelfTest(&cfg)
					switch {
					case f.fault == astray.None && err != nil:
						t.Errorf("%s, %s, %s: %v", c.name, name, kv, err)
					case f.fault == astray.None:
					case dev.Hits == 0:
						t.Errorf("%s, %s, %s: no operation met the fault %q", c.name, name, kv, f.fault)
					case err == nil || !strings.Contains(err.Error(), f.want):
						t.Errorf("%s, %s, %s, %q: %v, want %q", c.name, name, kv, f.fault, err, f.want)
					}
				}
			}
		}
	}
}
