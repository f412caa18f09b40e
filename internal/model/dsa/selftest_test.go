package dsa_test

import (
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/testkit/rounded"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// wrong is a device that computes one operation wrongly.
type wrong struct {
	kernel.Device
	fault string
}

// Do carries out an operation in its own way, or by the device.
func (d *wrong) Do(op kernel.Op) error {
	switch a := op.(type) {
	case kernel.SelectArgs:
		return d.Select(a)
	case kernel.SparseArgs:
		return d.SparseAttend(a)
	case kernel.DenseArgs:
		return d.DenseAttend(a)
	}
	return d.Device.Do(op)
}

// Select puts the first key that was left out in place of another, in the last row.
func (d *wrong) Select(a kernel.SelectArgs) error {
	err := d.Device.Do(a)
	if err != nil || d.fault != "selection" {
		return err
	}
	k := a.Out.Cols
	got := make([]int32, a.Out.Rows*k)
	if err := kernel.ReadI32(d.Device, got, a.Out); err != nil {
		return err
	}
	last := got[len(got)-k:]
	for i := range last {
		if last[i] != int32(i) { // key i is the first that was left out
			last[i] = int32(i)
			break
		}
	}
	return kernel.WriteI32(d.Device, a.Out, got)
}

// SparseAttend leaves out the last keys of every row.
func (d *wrong) SparseAttend(a kernel.SparseArgs) error {
	if d.fault != "sparse" {
		return d.Device.Do(a)
	}
	lens := make([]int32, a.Lens.Rows)
	if err := kernel.ReadI32(d.Device, lens, a.Lens); err != nil {
		return err
	}
	fewer := make([]int32, len(lens))
	for i, n := range lens {
		fewer[i] = n - max(1, n/64)
	}
	if err := kernel.WriteI32(d.Device, a.Lens, fewer); err != nil {
		return err
	}
	if err := d.Device.Do(a); err != nil {
		return err
	}
	return kernel.WriteI32(d.Device, a.Lens, lens)
}

// DenseAttend uses a wrong scale.
func (d *wrong) DenseAttend(a kernel.DenseArgs) error {
	if d.fault == "dense" {
		a.Scale *= 1.25
	}
	return d.Device.Do(a)
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
			return kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{})
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
			dev := &wrong{Device: inner}
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
				for fault, want := range map[string]string{
					"": "", "selection": "a stable sort of the scores selects key",
					"sparse": "sparse attention differs from dense attention",
					"dense":  "sparse attention differs from dense attention",
				} {
					dev.fault = fault
					err := m.(model.SelfTester).SelfTest(&cfg)
					switch {
					case fault == "" && err != nil:
						t.Errorf("%s, %s, %s: %v", c.name, name, kv, err)
					case fault != "" && (err == nil || !strings.Contains(err.Error(), want)):
						t.Errorf("%s, %s, %s, a fault in %s: %v, want %q", c.name, name, kv, fault, err, want)
					}
				}
			}
		}
	}
}
