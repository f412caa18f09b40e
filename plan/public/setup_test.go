package public

import (
	"errors"
	"slices"
	"testing"

	"sparrow/plan"
)

// setup holds the hardware, model and policy of a case; the batch is added later.
type setup struct {
	hw     plan.Hardware
	model  plan.Model
	policy Policy
}

type tweak func(*setup)

func hardware(t testing.TB, name string) plan.Hardware {
	t.Helper()
	hw, err := plan.HardwareFor(name)
	if err != nil {
		t.Fatal(err)
	}
	return hw
}

func model(t testing.TB, name string, heads int) plan.Model {
	t.Helper()
	m, err := plan.ModelFor(name)
	if err != nil {
		t.Fatal(err)
	}
	m.Heads = heads
	return m
}

// newSetup returns a setup with the defaults of section 20 of the dispatch spec: the DSA family, K = 2048, and 16 heads
// per rank.
func newSetup(t testing.TB, hw string, tweaks ...tweak) *setup {
	t.Helper()
	s := &setup{hw: hardware(t, hw), model: model(t, "deepseek_v32", 16)}
	for _, f := range tweaks {
		f(s)
	}
	return s
}

func kv(name string) tweak { return func(s *setup) { s.policy.KV = name } }

func kernelsOf(prefill, decode string) tweak {
	return func(s *setup) { s.policy.Prefill, s.policy.Decode = prefill, decode }
}

func family(t testing.TB, name string) tweak {
	return func(s *setup) { s.model = model(t, name, 16) }
}

func heads(n int) tweak { return func(s *setup) { s.model.Heads = n } }

func drafts(n int) tweak {
	return func(s *setup) { s.policy.Speculation = plan.Speculation{Tokens: n} }
}

func wish(f func(p *Policy)) tweak { return func(s *setup) { f(&s.policy) } }

func (s *setup) resolve(t testing.TB) Config {
	t.Helper()
	cfg, _, err := Resolve(s.hw, s.model, s.policy)
	if err != nil {
		t.Fatalf("resolve: %v", err)
	}
	return cfg
}

func (s *setup) refused(t testing.TB, code plan.Code) *plan.Error {
	t.Helper()
	_, _, err := Resolve(s.hw, s.model, s.policy)
	return wantError(t, err, code)
}

func wantError(t testing.TB, err error, code plan.Code) *plan.Error {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if !errors.Is(err, code) {
		t.Fatalf("error %v, want %s", err, code)
	}
	var e *plan.Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *Error", err)
	}
	return e
}

func build(t testing.TB, cfg Config, b plan.Batch) *plan.Plan {
	t.Helper()
	p, err := Build(cfg, b)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return p
}

// only returns the segment of a plan that must have exactly one segment.
func only(t testing.TB, p *plan.Plan) *plan.Segment {
	t.Helper()
	if len(p.Segments) != 1 {
		t.Fatalf("%d segments, want 1", len(p.Segments))
	}
	return &p.Segments[0]
}

func launchRows(s *plan.Segment) []int {
	rows := make([]int, len(s.Launches))
	for i, l := range s.Launches {
		rows[i] = l.Rows
	}
	return rows
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

func hasReason(reasons []plan.Reason, rule string) bool {
	return slices.ContainsFunc(reasons, func(r plan.Reason) bool { return r.Rule == rule })
}

func repeat(n int, r plan.Request) []plan.Request {
	list := make([]plan.Request, n)
	for i := range list {
		list[i] = r
	}
	return list
}

func extend(lengths ...int) plan.Batch {
	b := plan.Batch{Mode: plan.ModeExtend}
	for _, n := range lengths {
		b.Requests = append(b.Requests, plan.ExtendRequest(n, 0))
	}
	return b
}

func extendOver(extend, prefix int) plan.Batch {
	return plan.NewBatch(plan.ModeExtend, plan.ExtendRequest(extend, prefix))
}

func decode(lengths ...int) plan.Batch {
	b := plan.Batch{Mode: plan.ModeDecode}
	for _, n := range lengths {
		b.Requests = append(b.Requests, plan.DecodeRequest(n))
	}
	return b
}

func verify(lengths ...int) plan.Batch {
	b := plan.Batch{Mode: plan.ModeVerify}
	for _, n := range lengths {
		b.Requests = append(b.Requests, plan.Request{Seq: n})
	}
	return b
}

func draft(lengths ...int) plan.Batch {
	b := verify(lengths...)
	b.Mode = plan.ModeDraft
	return b
}

func inGraph(g plan.GraphMode, b plan.Batch) plan.Batch { b.Graph = g; return b }
