// Package steps runs passes of a model in tests: whole sequences, chunks or single tokens, with pages in random order.
// It compares logits and cache contents bitwise.
package steps

import (
	"bytes"
	"math"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/family"
	"sparrow/internal/step"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
	"sparrow/plan"
)

// Model is a model that keeps a state for every sequence.
type Model interface {
	model.Model
	model.Stateful
	// Pools returns the pages of every layer.
	Pools() [][]kernel.Pool
}

// Bench holds a model, its configuration and its free pages.
type Bench struct {
	testing.TB
	Model  Model
	Config plan.Config
	Runner *step.Runner
	next   int32
	states []model.State
}

// Pages is the number of pages of a bench: only as many as tests need, because comparing and clearing the caches takes
// as long as computing.
const Pages = 13

// Limits are large enough for every pass of these tests.
var Limits = step.Limits{Rows: 1400, Requests: 16, Prompts: 9, Context: 1536, PromptLogits: 1400}

// Device opens a device of this machine by name, with one worker. Results do not depend on the number of workers, which
// package kernel/cpu tests. The device is closed when the test ends.
func Device(t *testing.T, kernels string) kernel.Device {
	t.Helper()
	dev, err := kernel.NewRegistry(cpu.Backends(), ref.Backends()).Open(kernels, kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dev.Close() })
	return dev
}

// Open loads a checkpoint of the family M.
func Open[M Model](t *testing.T, dir, kernels string) M {
	t.Helper()
	return OpenOn[M](t, dir, Device(t, kernels))
}

// OpenOn loads a checkpoint of the family M on a device, like Open.
func OpenOn[M Model](t *testing.T, dir string, dev kernel.Device) M {
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
	return m.(M)
}

// New returns a bench for the configuration that a policy resolves to.
func New(t *testing.T, m Model, p plan.Policy) *Bench {
	t.Helper()
	return Of(t, m, resolve(t, m, p), Limits)
}

// resolve returns the configuration of a model that a policy resolves to.
func resolve(t *testing.T, m Model, p plan.Policy) plan.Config {
	t.Helper()
	hw, err := model.Hardware(m.Device())
	if err != nil {
		t.Fatal(err)
	}
	cfg, _, err := plan.Resolve(hw, m.Facts(), p)
	if err != nil {
		t.Fatal(err)
	}
	return cfg
}

// Of returns a bench of a resolved configuration. Only the latest bench of a model can be used, because the cache of
// the model belongs to it.
func Of(t *testing.T, m Model, cfg plan.Config, l step.Limits) *Bench {
	t.Helper()
	b := &Bench{TB: t, Model: m, Config: cfg}
	b.Reset()
	var err error
	if b.Runner, err = step.New(m, cfg, l); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.release()
		b.Runner.Close()
	})
	return b
}

// Reset empties the cache and releases the states of all sequences.
func (b *Bench) Reset() {
	b.Helper()
	if err := b.Model.Allocate(&b.Config, Pages); err != nil {
		b.Fatal(err)
	}
	b.release()
	b.next = 1
}

func (b *Bench) release() {
	for _, s := range b.states {
		s.Release()
	}
	b.states = b.states[:0]
}

// Sequence is one sequence under test.
type Sequence struct {
	Tokens []int32
	Pages  []int32
	State  model.State
}

// Sequence returns a sequence of n tokens that depend on the seed, with pages in random order.
func (b *Bench) Sequence(seed, n int) *Sequence {
	b.Helper()
	s := &Sequence{Tokens: make([]int32, n), Pages: make([]int32, (n+b.Config.Page-1)/b.Config.Page)}
	for i := range s.Tokens {
		s.Tokens[i] = int32((i*i*7 + i*31*seed + seed*977) % b.Model.Config().Vocab)
	}
	for i := range s.Pages {
		s.Pages[i] = b.next * 37 % Pages
		b.next++
	}
	s.State = b.NewState()
	return s
}

// NewState makes a state that Reset releases.
func (b *Bench) NewState() model.State {
	b.Helper()
	st, err := b.Model.NewState()
	if err != nil {
		b.Fatal(err)
	}
	b.states = append(b.states, st)
	return st
}

// Work returns the step of the sequence's next n tokens, with logits for all of these tokens.
func (s *Sequence) Work(kind plan.Mode, n int) step.Work {
	at := s.State.Len()
	return step.Work{Kind: kind, Tokens: s.Tokens[at : at+n], Cached: at, Before: s.Tokens[:at],
		Pages: s.Pages, Logits: n, State: s.State}
}

// Step runs works and returns their rows of logits.
func (b *Bench) Step(works ...step.Work) [][]float32 {
	b.Helper()
	res, err := b.Runner.Run(works)
	if err != nil {
		b.Fatal(err)
	}
	var out [][]float32
	for i := range len(res.Logits) / max(res.Vocab, 1) {
		out = append(out, append([]float32(nil), res.Row(i)...))
	}
	return out
}

// Chunks runs the rest of a sequence in pieces of the given size; 0 means the whole rest.
func (b *Bench) Chunks(s *Sequence, size int) [][]float32 {
	b.Helper()
	var out [][]float32
	for s.State.Len() < len(s.Tokens) {
		n := len(s.Tokens) - s.State.Len()
		if size > 0 {
			n = min(n, size)
		}
		out = append(out, b.Step(s.Work(plan.ModeExtend, n))...)
	}
	return out
}

// Decode runs the next n tokens of a sequence one at a time.
func (b *Bench) Decode(s *Sequence, n int) [][]float32 {
	b.Helper()
	var out [][]float32
	for range n {
		out = append(out, b.Step(s.Work(plan.ModeDecode, 1))...)
	}
	return out
}

// BatchedEqualsAlone compares prompts of these lengths, their cache contents, and the step that next returns for each
// of them: alone, and in one batch.
func (b *Bench) BatchedEqualsAlone(lengths []int, next func(s *Sequence, i int) step.Work) {
	b.Helper()
	const more = 5 // maximum number of tokens that next may take
	b.Reset()
	var prompts, after [][]float32
	var all []*Sequence
	for i, n := range lengths {
		all = append(all, b.Sequence(i, n+more))
		prompts = append(prompts, b.Step(all[i].Work(plan.ModeExtend, n))...)
	}
	bytes := b.Bytes()
	for i, s := range all {
		after = append(after, b.Step(next(s, i))...)
	}
	b.Reset()
	all = all[:0]
	var works []step.Work
	for i, n := range lengths {
		s := b.Sequence(i, n+more)
		all = append(all, s)
		works = append(works, s.Work(plan.ModeExtend, n))
	}
	got := b.Step(works...)
	b.SameBytes("prompts in one batch", b.Bytes(), bytes)
	b.SameBits("prompts in one batch", got, prompts)
	works = works[:0]
	for i, s := range all {
		works = append(works, next(s, i))
	}
	b.SameBits("a mixed batch", b.Step(works...), after)
}

// Bytes returns all bytes of all pools.
func (b *Bench) Bytes() []byte {
	b.Helper()
	n := 0
	for _, layer := range b.Model.Pools() {
		for _, p := range layer {
			n += p.Mem.Rows * p.Mem.Cols
		}
	}
	out := make([]byte, n)
	rest := out
	for _, layer := range b.Model.Pools() {
		for _, p := range layer {
			n := p.Mem.Rows * p.Mem.Cols
			if err := b.Model.Device().Read(rest[:n], p.Mem); err != nil {
				b.Fatal(err)
			}
			rest = rest[n:]
		}
	}
	return out
}

// SameBits fails the test unless rows of logits are bitwise equal.
func (b *Bench) SameBits(what string, got, want [][]float32) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d rows, want %d", what, len(got), len(want))
	}
	for r := range want {
		for i := range want[r] {
			if math.Float32bits(got[r][i]) != math.Float32bits(want[r][i]) {
				b.Fatalf("%s: row %d logit %d is %v, want %v bitwise", what, r, i, got[r][i], want[r][i])
			}
		}
	}
}

// SameBytes fails the test unless two results of Bytes are equal.
func (b *Bench) SameBytes(what string, got, want []byte) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d bytes of cache, want %d", what, len(got), len(want))
	}
	if bytes.Equal(got, want) {
		return
	}
	at := 0
	for l, layer := range b.Model.Pools() {
		for _, p := range layer {
			n := p.Mem.Rows * p.Mem.Cols
			for i := at; i < at+n; i++ {
				if got[i] != want[i] {
					b.Errorf("%s: layer %d, layout %v, page %d: byte %d is %#x, want %#x", what, l, p.Layout,
						(i-at)/p.Mem.Cols, (i-at)%p.Mem.Cols, got[i], want[i])
					break // only the first difference of every pool is reported
				}
			}
			at += n
		}
	}
	b.FailNow()
}
