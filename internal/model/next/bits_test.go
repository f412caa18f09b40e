package next_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/next"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testkit/testflag"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

var _ model.Snapshotted = (*next.Model)(nil) // the interface that the engine uses

// policies lists the cache layouts and the forms of attention.
var policies = []plan.Policy{{KV: "f32"}, {KV: "bf16"}, {KV: "fp8"}, {KV: "bf16", ExactIndex: true},
	{KV: "fp8", Deterministic: true}, {KV: "fp8", Prefill: "sparse-flat"}}

func TestMain(m *testing.M) { testmodel.Run(m) }

// checkpoint returns the folder of the model whose bits are compared: the smallest one, with a layer of each kind, or
// with -long the one of the reference outputs, with two layers of each kind. TestNextExact of package verify compares
// chunks of the latter with those outputs.
func checkpoint(t *testing.T) string {
	t.Helper()
	if *testflag.Long {
		return oracle(t)
	}
	return testmodel.NextDraft(t)
}

// A prompt gives the same logits and the same cache bytes with any division into chunks, also at every boundary of a
// pool, of 64 positions and of a page. The recurrent form uses the same arithmetic for prompts and decodes.
func TestChunkedEqualsWhole(t *testing.T) {
	m := steps.Open[*next.Model](t, checkpoint(t), "cpu")
	for i, p := range policies {
		t.Run(fmt.Sprintf("%s %v %v %s", p.KV, p.ExactIndex, p.Deterministic, p.Prefill), func(t *testing.T) {
			if p.ExactIndex && !*testflag.Long {
				t.Skip("make long runs it: the case of float32 rows has these keys")
			}
			b := steps.New(t, m, p)
			want := b.Chunks(b.Sequence(1, 330), 0)
			bytes := b.Bytes()
			chunks := []int{129}
			if i == 1 {
				chunks = []int{7, 64, 127, 256} // with chunks of 7 tokens the last chunk has one token
			}
			for _, c := range chunks {
				b.Reset()
				b.SameBits(fmt.Sprintf("chunks of %d", c), b.Chunks(b.Sequence(1, 330), c), want)
				b.SameBytes(fmt.Sprintf("chunks of %d", c), b.Bytes(), bytes)
			}
			b.Reset()
			s := b.Sequence(1, 330)
			got := append(b.Step(s.Work(plan.ModeExtend, 250)), b.Decode(s, 20)...)
			b.SameBits("250 tokens and 20 decodes", got, want[:270])
		})
	}
}

// If linear attention computes positions in groups, a prompt gives the same bits with any division into chunks that end
// at multiples of a group, and so does a decode in a pass with a prompt. A chunk that ends inside a group changes bits,
// which shows that groups are computed.
func TestGroupsChangeNoBitsOfChunks(t *testing.T) {
	m := steps.Open[*next.Model](t, testmodel.NextDraft(t), "ref")
	cfg := steps.New(t, m, plan.Policy{KV: "bf16"}).Config
	cfg.LinearGroup = 16
	b := steps.Of(t, m, cfg, steps.Limits)
	want := b.Chunks(b.Sequence(1, 90), 0)
	for _, c := range []struct {
		chunk int
		same  bool
	}{{48, true}, {16, true}, {40, false}} {
		b.Reset()
		got := b.Chunks(b.Sequence(1, 90), c.chunk)
		if c.same {
			b.SameBits(fmt.Sprintf("chunks of %d", c.chunk), got, want)
		} else if slices.EqualFunc(got, want, slices.Equal[[]float32]) {
			t.Errorf("chunks of %d positions have the bits of the whole prompt: no groups", c.chunk)
		}
	}
	// Groups begin at multiples of 16 positions, also in a pass that begins at another position.
	rest := func(sizes ...int) (rows [][]float32) {
		b.Reset()
		s := b.Sequence(1, 90)
		b.Step(s.Work(plan.ModeExtend, 40))
		for _, n := range sizes {
			rows = append(rows, b.Step(s.Work(plan.ModeExtend, n))...)
		}
		return rows
	}
	b.SameBits("the end of a group in its own pass", rest(8, 42), rest(50))
	// A decode in a pass without groups, then in a pass with the second chunk of a prompt.
	decode := func(with bool) [][]float32 {
		b.Reset()
		s, other := b.Sequence(1, 90), b.Sequence(2, 90)
		b.Step(s.Work(plan.ModeExtend, 80), other.Work(plan.ModeExtend, 32))
		if !with {
			return b.Step(s.Work(plan.ModeDecode, 1))
		}
		rows := b.Step(other.Work(plan.ModeExtend, 48), s.Work(plan.ModeDecode, 1))
		return rows[len(rows)-1:]
	}
	alone := decode(false)
	b.SameBits("a decode with a prompt", decode(true), alone)
}

// A row's bits are the same alone and in any batch with prompts and decodes.
func TestBatchedEqualsAlone(t *testing.T) {
	m := steps.Open[*next.Model](t, checkpoint(t), "cpu")
	lengths := []int{1, 3, 4, 127, 128, 131, 255, 256, 300}
	next := func(s *steps.Sequence, i int) step.Work {
		if i%2 == 1 {
			return s.Work(plan.ModeExtend, 5)
		}
		return s.Work(plan.ModeDecode, 1)
	}
	for i, p := range policies[:3] {
		b := steps.New(t, m, p)
		if i == 0 {
			b.BatchedEqualsAlone([]int{1, 3, 4, 129}, next)
			continue
		}
		b.BatchedEqualsAlone(lengths, next)
	}
}

// A sequence that continues after pages of another sequence has the same bits as a sequence that computed these pages
// itself. This holds at every page, whether the snapshot was taken inside a pass or at its end, in a prompt or by a
// decode.
func TestRestoredEqualsComputed(t *testing.T) {
	m := steps.Open[*next.Model](t, checkpoint(t), "cpu")
	for i, p := range policies[:3] {
		if i == 0 && !*testflag.Long { // the other layouts imply it
			continue
		}
		for _, chunk := range [][]int{{0}, {256}, {200}}[i] {
			b := steps.New(t, m, p)
			first := b.Sequence(3, 780)
			want := b.Step(first.Work(plan.ModeExtend, 500))
			if chunk != 0 {
				b.Reset()
				first = b.Sequence(3, 780)
				want = nil
				for first.State.Len() < 500 {
					want = append(want, b.Step(first.Work(plan.ModeExtend, min(chunk, 500-first.State.Len())))...)
				}
			}
			want = append(want, b.Decode(first, 20)...) // crosses position 511, which ends a page
			want = append(want, b.Step(first.Work(plan.ModeExtend, 260))...)
			for _, pages := range []int{1, 2, 3} {
				st, err := m.Restore(256*pages, first.Pages)
				if err != nil {
					t.Fatal(err)
				}
				s := &steps.Sequence{Tokens: first.Tokens, Pages: first.Pages, State: st}
				b.SameBits(fmt.Sprintf("behind %d pages, chunk %d", pages, chunk), b.Chunks(s, 100), want[256*pages:])
				st.Release()
			}
		}
	}
}

// States can be cloned and reused, and are checked. They cannot be truncated.
func TestStates(t *testing.T) {
	m := steps.Open[*next.Model](t, checkpoint(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "bf16"})
	const prefix, total = 130, 142
	want := b.Chunks(b.Sequence(7, total), 0)
	b.Reset()
	s, copied := b.Sequence(7, total), b.Sequence(7, total)
	b.Step(s.Work(plan.ModeExtend, prefix), copied.Work(plan.ModeExtend, prefix))
	var forks []model.State
	for range 9 { // more states than slots, so that the memory grows while a state is open
		c, err := s.State.Clone()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(c.Release)
		forks = append(forks, c)
	}
	fork := &steps.Sequence{Tokens: append([]int32(nil), s.Tokens...), Pages: copied.Pages, State: forks[0]}
	for i := prefix; i < total; i++ {
		fork.Tokens[i] = 3
	}
	b.Chunks(fork, 1)
	b.SameBits("the sequence that was forked", b.Chunks(s, 5), want[prefix:])
	other := &steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: forks[8]}
	b.SameBits("another fork", b.Chunks(other, 1), want[prefix:])
	if err := s.State.Truncate(total - 1); err == nil || !strings.Contains(err.Error(), "compute the sequence again") {
		t.Errorf("a state went back: %v", err)
	}
	if err := s.State.Truncate(0); err != nil {
		t.Fatal(err)
	}
	b.SameBits("the same state from the beginning", b.Chunks(s, 50), want)
	refused := func(want string, works ...step.Work) {
		t.Helper()
		if _, err := b.Runner.Run(works); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	s = b.Sequence(1, 300)
	w := s.Work(plan.ModeExtend, 8)
	w.State = nil
	refused("has no state of this model", w)
	w = s.Work(plan.ModeExtend, 8)
	w.Cached = 4
	refused("continues at position 4, but its state covers 0 tokens", w)
	w = s.Work(plan.ModeExtend, 8)
	refused("shares its state", w, w)
}

// n tokens are verified, some of them are accepted, and the sequence continues with other tokens. The state and the
// caches then equal those of a sequence that never drafted, also if the page ends among the drafts.
func TestRollbackEqualsNoDraft(t *testing.T) {
	m := steps.Open[*next.Model](t, checkpoint(t), "cpu")
	b := steps.New(t, m, plan.Policy{KV: "bf16", Speculation: plan.Speculation{Tokens: 5}})
	for _, prefix := range []int{5, 254} {
		total := prefix + 14
		b.Reset()
		want := b.Chunks(b.Sequence(6, total), 0)
		bytes := b.Bytes()
		for _, n := range []int{2, 5} {
			for kept := 1; kept <= n; kept++ {
				b.Reset()
				s := b.Sequence(6, total)
				b.Step(s.Work(plan.ModeExtend, prefix))
				what := fmt.Sprintf("%d tokens, %d drafted, %d kept", prefix, n, kept)
				for range 2 { // the second pass commits the rows that the first held back, and holds back its own
					at := s.State.Len()
					w := s.Work(plan.ModeVerify, n)
					w.Tokens = append([]int32(nil), w.Tokens...)
					for i := kept; i < n; i++ {
						w.Tokens[i] = (w.Tokens[i] + 1) % int32(m.Config().Vocab) // a wrong draft
					}
					b.SameBits(what, b.Step(w)[:kept], want[at:at+kept])
					if err := s.State.Truncate(at + kept); err != nil {
						t.Fatalf("%s: %v", what, err)
					}
				}
				fork, err := s.State.Clone()
				if err != nil {
					t.Fatal(err)
				}
				rest := want[s.State.Len():]
				b.SameBits(what+", forked", b.Decode(&steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: fork}, 1),
					rest[:1])
				fork.Release()
				b.SameBits(what, b.Chunks(s, 3), rest)
				b.SameBytes(what, b.Bytes(), bytes)
				if prefix > 250 { // the snapshot after the page contains the accepted rows
					st, err := m.Restore(256, s.Pages)
					if err != nil {
						t.Fatal(err)
					}
					again := &steps.Sequence{Tokens: s.Tokens, Pages: s.Pages, State: st}
					b.SameBits(what+", restored", b.Chunks(again, 0), want[256:])
					st.Release()
				}
			}
		}
	}
}

// The cache and the states have the computed sizes, with and without the drafting layer.
func TestMemoryIsAsComputed(t *testing.T) {
	steps.Memory[*next.Model](t, testmodel.Next(t), plan.Policy{KV: "f32"}, 0)
	steps.Memory[*next.Model](t, testmodel.NextDraft(t), plan.Policy{KV: "bf16"}, 5)
}
