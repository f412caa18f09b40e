package plan

import (
	"errors"
	"slices"
	"testing"
)

// setup holds the hardware, model and policy of a case; the batch is added later.
type setup struct {
	hw     Hardware
	model  Model
	policy Policy
}

type tweak func(*setup)

func hardware(t testing.TB, name string) Hardware {
	t.Helper()
	hw, err := HardwareFor(name)
	if err != nil {
		t.Fatal(err)
	}
	return hw
}

func model(t testing.TB, name string, heads int) Model {
	t.Helper()
	m, err := ModelFor(name)
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
	return func(s *setup) { s.policy.Speculation = Speculation{Tokens: n} }
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

func (s *setup) refused(t testing.TB, code Code) *Error {
	t.Helper()
	_, _, err := Resolve(s.hw, s.model, s.policy)
	return wantError(t, err, code)
}

func wantError(t testing.TB, err error, code Code) *Error {
	t.Helper()
	if err == nil {
		t.Fatalf("no error, want %s", code)
	}
	if !errors.Is(err, code) {
		t.Fatalf("error %v, want %s", err, code)
	}
	var e *Error
	if !errors.As(err, &e) {
		t.Fatalf("error %v is no *Error", err)
	}
	return e
}

func build(t testing.TB, cfg Config, b Batch) *Plan {
	t.Helper()
	p, err := Build(cfg, b)
	if err != nil {
		t.Fatalf("build: %v", err)
	}
	return p
}

// only returns the segment of a plan that must have exactly one segment.
func only(t testing.TB, p *Plan) *Segment {
	t.Helper()
	if len(p.Segments) != 1 {
		t.Fatalf("%d segments, want 1", len(p.Segments))
	}
	return &p.Segments[0]
}

func launchRows(s *Segment) []int {
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

func repeat(n int, r Request) []Request {
	list := make([]Request, n)
	for i := range list {
		list[i] = r
	}
	return list
}

func extend(lengths ...int) Batch {
	b := Batch{Mode: ModeExtend}
	for _, n := range lengths {
		b.Requests = append(b.Requests, ExtendRequest(n, 0))
	}
	return b
}

func extendOver(extend, prefix int) Batch { return NewBatch(ModeExtend, ExtendRequest(extend, prefix)) }

func decode(lengths ...int) Batch {
	b := Batch{Mode: ModeDecode}
	for _, n := range lengths {
		b.Requests = append(b.Requests, DecodeRequest(n))
	}
	return b
}

func verify(lengths ...int) Batch {
	b := Batch{Mode: ModeVerify}
	for _, n := range lengths {
		b.Requests = append(b.Requests, Request{Seq: n})
	}
	return b
}

func draft(lengths ...int) Batch {
	b := verify(lengths...)
	b.Mode = ModeDraft
	return b
}

func inGraph(g GraphMode, b Batch) Batch { b.Graph = g; return b }
