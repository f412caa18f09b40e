package verify_test

import (
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/model/family"
	"sparrow/plan"
	"sparrow/verify"
)

func TestOne(t *testing.T) {
	reg := kernel.NewRegistry(cpu.Backends(), ref.Backends())
	for _, name := range []string{"deepseek_v32-1", "deepseek_v32-fp8-1", "glm_moe_dsa-1"} {
		dir := "../testdata/oracle/" + name
		src, err := family.Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		dev, err := reg.Open("cpu", kernel.Options{})
		if err != nil {
			t.Fatal(err)
		}
		m, err := src.Load(dev, nil)
		if err != nil {
			t.Fatal(err)
		}
		hw, _ := plan.HardwareFor("cpu")
		cfg, _, err := plan.Resolve(hw, m.Facts(), plan.Policy{KV: "f32"})
		if err != nil {
			t.Fatal(err)
		}
		r, err := verify.Run(dir, m, verify.Options{Config: cfg})
		if err != nil {
			t.Fatal(err)
		}
		r.Print(testingWriter{t})
		if !r.Passed {
			t.Error("failed")
		}
	}
}

type testingWriter struct{ t *testing.T }

func (w testingWriter) Write(b []byte) (int, error) { w.t.Log(string(b)); return len(b), nil }
