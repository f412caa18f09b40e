package eval

import (
	"errors"
	"strings"
	"testing"

	"sparrow/plan"
)

func TestParsePlans(t *testing.T) {
	plans, err := ParsePlans(
		"sparse, dense,kv=fp8-576+deterministic,dense-prompt,kernels=ref+prefill=sparse-flat+decode=sparse-block",
		plan.Policy{KV: "bf16", MaxTransient: 64})
	if err != nil {
		t.Fatal(err)
	}
	base := plan.Policy{KV: "bf16", MaxTransient: 64}
	want := make([]Plan, 5)
	for i, name := range []string{"sparse", "dense", "kv=fp8-576+deterministic", "dense-prompt",
		"kernels=ref+prefill=sparse-flat+decode=sparse-block"} {
		want[i] = Plan{Name: name, Policy: base}
	}
	want[1].Policy.DenseThreshold, want[1].Dense = denseKeys, true
	want[2].Policy.KV, want[2].Policy.Deterministic = "fp8-576", true
	want[3].Policy.DenseThreshold = denseKeys
	want[4].Kernels, want[4].Policy.Prefill, want[4].Policy.Decode = "ref", "sparse-flat", "sparse-block"
	if len(plans) != len(want) {
		t.Fatalf("%d plans, want %d", len(plans), len(want))
	}
	for i, p := range plans {
		if p.About == "" || strings.Contains(p.About, "%") {
			t.Errorf("%s means %q", p.Name, p.About)
		}
		p.About = ""
		if p.Name != want[i].Name || p.Dense != want[i].Dense || p.Kernels != want[i].Kernels ||
			p.Policy.KV != want[i].Policy.KV ||
			p.Policy.MaxTransient != 64 || p.Policy.DenseThreshold != want[i].Policy.DenseThreshold ||
			p.Policy.Deterministic != want[i].Policy.Deterministic ||
			p.Policy.Prefill != want[i].Policy.Prefill || p.Policy.Decode != want[i].Policy.Decode {
			t.Errorf("plan %d is %+v, want %+v", i, p, want[i])
		}
	}
	if !strings.Contains(plans[2].About, "fp8-576") {
		t.Errorf("%s means %q", plans[2].Name, plans[2].About)
	}
}

func TestBadPlans(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", "unknown"},
		{"sparse,", "unknown"},
		{"thick", "thick"},
		{"sparse=1", "sparse=1"},
		{"kv", "kv"},
		{"kv=", "no value"},
		{"sparse,dense,sparse", "twice"},
	} {
		if _, err := ParsePlans(c.text, plan.Policy{}); !errors.Is(err, ErrPlan) ||
			!strings.Contains(err.Error(), c.want) {
			t.Errorf("%q: %v; want it to say %q", c.text, err, c.want)
		}
	}
}
