package v4_test

import (
	"bytes"
	"math"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

const oracle = "../../../testdata/oracle/deepseek_v4-1"

// bench is a model, its configuration and its free pages.
type bench struct {
	*testing.T
	m      *v4.Model
	cfg    plan.Config
	run    *step.Runner
	next   int32
	states []model.State
}

const benchPages = 13 // no more than sequences of a test need: comparing and emptying caches takes as long as computing

// benchLimits hold every pass of these tests.
var benchLimits = step.Limits{Rows: 1400, Requests: 16, Prompts: 9, Context: 1536, PromptLogits: 1400}

func device(t *testing.T, kernels string) kernel.Device {
	t.Helper()
	dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, kernel.Options{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

func open(t *testing.T, dir, kernels string) *v4.Model {
	t.Helper()
	return openOn(t, dir, device(t, kernels))
}

func openOn(t *testing.T, dir string, dev kernel.Device) *v4.Model {
	t.Helper()
	src, err := family.Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	m, err := src.Load(dev, nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { src.Close() })
	return m.(*v4.Model)
}

func newBench(t *testing.T, m *v4.Model, p plan.Policy) *bench {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	return benchOf(t, m, cfg, benchLimits)
}

// benchOf is a bench of a resolved configuration. The model's memory is bound to the latest bench alone.
func benchOf(t *testing.T, m *v4.Model, cfg plan.Config, l step.Limits) *bench {
	t.Helper()
	b := &bench{T: t, m: m, cfg: cfg}
	b.reset()
	var err error
	if b.run, err = step.New(m, cfg, l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.release()
		b.run.Close()
	})
	return b
}

// reset empties the cache and releases the states of all sequences.
func (b *bench) reset() {
	b.Helper()
	if err := b.m.Allocate(&b.cfg, benchPages); err != nil {
		b.Fatal(err)
	}
	b.release()
	b.next = 1
}

func (b *bench) release() {
	for _, s := range b.states {
		s.Release()
	}
	b.states = b.states[:0]
}

// sequence is one sequence under test.
type sequence struct {
	tokens []int32
	pages  []int32
	state  model.State
}

// sequence makes one of n tokens that depend on the seed, with scattered pages.
func (b *bench) sequence(seed, n int) *sequence {
	b.Helper()
	s := &sequence{tokens: make([]int32, n), pages: make([]int32, (n+b.cfg.Page-1)/b.cfg.Page)}
	for i := range s.tokens {
		s.tokens[i] = int32((i*i*7 + i*31*seed + seed*977) % b.m.Config().Vocab)
	}
	for i := range s.pages {
		s.pages[i] = b.next * 37 % benchPages
		b.next++
	}
	s.state = b.newState()
	return s
}

func (b *bench) newState() model.State {
	b.Helper()
	st, err := b.m.NewState()
	if err != nil {
		b.Fatal(err)
	}
	b.states = append(b.states, st)
	return st
}

// work is the step of the sequence's next n tokens, with logits of all of them.
func (s *sequence) work(kind plan.Mode, n int) step.Work {
	at := s.state.Len()
	return step.Work{Kind: kind, Tokens: s.tokens[at : at+n], Cached: at, Pages: s.pages, Logits: n, State: s.state}
}

// step runs works and returns their rows of logits.
func (b *bench) step(works ...step.Work) [][]float32 {
	b.Helper()
	res, err := b.run.Run(works)
	if err != nil {
		b.Fatal(err)
	}
	var out [][]float32
	for i := range len(res.Logits) / max(res.Vocab, 1) {
		out = append(out, append([]float32(nil), res.Row(i)...))
	}
	return out
}

// chunks runs the rest of a sequence in pieces of the given size; 0 means whole.
func (b *bench) chunks(s *sequence, size int) [][]float32 {
	b.Helper()
	var out [][]float32
	for s.state.Len() < len(s.tokens) {
		n := len(s.tokens) - s.state.Len()
		if size > 0 {
			n = min(n, size)
		}
		out = append(out, b.step(s.work(plan.ModeExtend, n))...)
	}
	return out
}

// decode runs the next n tokens of a sequence one by one.
func (b *bench) decode(s *sequence, n int) [][]float32 {
	b.Helper()
	var out [][]float32
	for range n {
		out = append(out, b.step(s.work(plan.ModeDecode, 1))...)
	}
	return out
}

// bytes is every byte of every pool.
func (b *bench) bytes() []byte {
	b.Helper()
	n := 0
	for _, layer := range b.m.Pools() {
		for _, p := range layer {
			n += p.Mem.Rows * p.Mem.Cols
		}
	}
	out := make([]byte, n)
	rest := out
	for _, layer := range b.m.Pools() {
		for _, p := range layer {
			n := p.Mem.Rows * p.Mem.Cols
			if err := b.m.Device().Read(rest[:n], p.Mem); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	return out
}

func (b *bench) sameBits(what string, got, want [][]float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for r := range want {
		for i := range want[r] {
			if math.Float32bits(got[r][i]) != math.Float32bits(want[r][i]) {
				b.Fatalf("%s: row %d logit %d is %v, want %v to the bit", what, r, i, got[r][i], want[r][i])
			}
		}
	}
}

func (b *bench) sameBytes(what string, got, want []byte) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d bytes of cache, want %d", what, len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return
	}
	for i := range want {
		if got[i] != want[i] {
			b.Fatalf("%s: byte %d of the caches is %#x, want %#x", what, i, got[i], want[i])
		}
	}
}
