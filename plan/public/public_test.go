package public_test

import (
	"errors"
	"slices"
	"testing"

	"sparrow/plan"
	"sparrow/plan/public"
)

// A wish changes the model or the policy from which a configuration is resolved.
type wish func(*plan.Model, *public.Policy)

func kv(name string) wish { return func(_ *plan.Model, p *public.Policy) { p.KV = name } }

func kernels(prefill, decode string) wish {
	return func(_ *plan.Model, p *public.Policy) { p.Prefill, p.Decode = prefill, decode }
}

func drafts(n int) wish {
	return func(_ *plan.Model, p *public.Policy) { p.Speculation = plan.Speculation{Tokens: n} }
}

func policy(change func(*public.Policy)) wish {
	return func(_ *plan.Model, p *public.Policy) { change(p) }
}

func family(t testing.TB, name string) wish {
	return func(m *plan.Model, _ *public.Policy) { *m = model(t, name) }
}

// model returns a model with the 16 heads per rank of section 20 of the dispatch spec.
func model(t testing.TB, name string) plan.Model {
	t.Helper()
	m, err := plan.ModelFor(name)
	if err != nil {
		t.Fatal(err)
	}
	m.Heads = 16
	return m
}

// resolve returns a configuration of the public catalogue, for deepseek_v32 unless a wish names another family.
func resolve(t testing.TB, hw string, wishes ...wish) public.Config {
	t.Helper()
	h, err := plan.HardwareFor(hw)
	if err != nil {
		t.Fatal(err)
	}
	m, p := model(t, "deepseek_v32"), public.Policy{}
	for _, w := range wishes {
		w(&m, &p)
	}
	cfg, _, err := public.Resolve(h, m, p)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

func batch(t testing.TB, text string) plan.Batch {
	t.Helper()
	b, err := plan.ParseBatch(text)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// planned is one planned batch with the arrays of its only segment.
type planned struct {
	cfg    public.Config
	batch  plan.Batch
	plan   *plan.Plan
	arrays []public.Array
}

func build(t testing.TB, cfg public.Config, b plan.Batch) *planned {
	t.Helper()
	p, err := public.Build(cfg, b)
	if err != nil {
		t.Fatal(err)
	}
	if len(p.Segments) != 1 {
		t.Fatalf("%d segments, want 1", len(p.Segments))
	}
	return &planned{cfg, b, p, public.Arrays(&cfg, p, &p.Segments[0])}
}

func (p *planned) segment() *plan.Segment { return &p.plan.Segments[0] }

func (p *planned) filler() public.Filler { return public.NewFiller(&p.cfg, &p.batch, p.segment()) }

// shape returns the shape of an array, or nil if the segment does not need the array.
func (p *planned) shape(name public.ArrayName) []int {
	i := slices.IndexFunc(p.arrays, func(a public.Array) bool { return a.Name == name })
	if i < 0 {
		return nil
	}
	return p.arrays[i].Shape
}

type fillFunc func(public.Filler, []int32) error

// contents returns the values that a fill function writes to an array of the listed shape.
func (p *planned) contents(t testing.TB, name public.ArrayName, fill fillFunc) []int32 {
	t.Helper()
	i := slices.IndexFunc(p.arrays, func(a public.Array) bool { return a.Name == name })
	if i < 0 {
		t.Fatalf("no array %s", name)
	}
	dst := make([]int32, p.arrays[i].Len())
	if err := fill(p.filler(), dst); err != nil {
		t.Fatal(err)
	}
	return dst
}

func (p *planned) wantShape(t testing.TB, name public.ArrayName, want ...int) {
	t.Helper()
	wantInts(t, string(name)+" shape", p.shape(name), want)
}

func (p *planned) wantContents(t testing.TB, name public.ArrayName, fill fillFunc, want ...int32) {
	t.Helper()
	wantInts(t, string(name), p.contents(t, name, fill), want)
}

func wantInts[T comparable](t testing.TB, what string, got, want []T) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func want[T comparable](t testing.TB, what string, got, want T) {
	t.Helper()
	if got != want {
		t.Errorf("%s = %v, want %v", what, got, want)
	}
}

func wantLengthError(t testing.TB, what string, err error) {
	t.Helper()
	if !errors.Is(err, plan.E26) {
		t.Errorf("%s: error %v, want %s", what, err, string(plan.E26))
	}
}
