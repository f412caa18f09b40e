package v41_test

import (
	"fmt"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/v41"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/internal/testmodel"
	"sparrow/plan"
)

func TestMain(m *testing.M) { testmodel.Run(m) }

var (
	_ model.Windowed    = (*v41.Model)(nil)
	_ model.Remembering = (*v41.Model)(nil)
)

// policies lists the cache layouts: float32, and four-bit entries with an eight-bit window.
var policies = []plan.Policy{{KV: "f32"}, {KV: "fp8"}, {KV: "fp8", Deterministic: true}}

func open(t *testing.T) *v41.Model {
	t.Helper()
	return steps.Open[*v41.Model](t, testmodel.V41(t), "cpu")
}

func each(t *testing.T, run func(t *testing.T, b *steps.Bench)) { eachOf(t, open(t), policies, run) }

// few returns the policies that make test uses where other tests imply the others: those of DeepSeek-V4.1's own cache.
func few() []plan.Policy {
	if *long {
		return policies
	}
	return policies[1:2]
}

// eachOf runs a test with every given policy.
func eachOf(t *testing.T, m *v41.Model, policies []plan.Policy, run func(t *testing.T, b *steps.Bench)) {
	for _, p := range policies {
		t.Run(fmt.Sprintf("%s %v", p.KV, p.Deterministic), func(t *testing.T) { run(t, steps.New(t, m, p)) })
	}
}

// A prompt gives the same logits and the same cache bytes with any division into chunks, also between the tokens of a
// pair, inside a block of candidates, and at the end of a window or page. Decodes continue with the same bits.
func TestChunkedEqualsWhole(t *testing.T) { each(t, chunkedEqualsWhole) }

func chunkedEqualsWhole(t *testing.T, b *steps.Bench) {
	const n = 330
	want := b.Chunks(b.Sequence(1, n), 0)
	bytes := b.Bytes()
	chunks, prefixes := []int{3, 129}, []int{127}
	switch {
	case b.Config.Deterministic:
		chunks, prefixes = []int{7, 127, 256}, []int{1, 2, 127, 128, 253, 255} // the last chunk of 7 has one token
	case exact(b) || !*long: // other chunks are cut by the case above
		chunks = []int{129}
	}
	for _, c := range chunks {
		b.Reset()
		b.SameBits(fmt.Sprintf("chunks of %d", c), b.Chunks(b.Sequence(1, n), c), want)
		b.SameBytes(fmt.Sprintf("chunks of %d", c), b.Bytes(), bytes)
	}
	for _, prefix := range prefixes {
		b.Reset()
		s := b.Sequence(1, n)
		got := append(b.Step(s.Work(plan.ModeExtend, prefix)), b.Decode(s, 6)...)
		b.SameBits(fmt.Sprintf("%d tokens and 6 decodes", prefix), got, want[:prefix+6])
	}
}

// exact reports whether cache rows are float32. The tests of this file hardly depend on the cache layout.
func exact(b *steps.Bench) bool { return b.Config.KV == plan.F32 }

// A row's bits are the same alone and in any batch with prompts, decodes and verifies.
func TestBatchedEqualsAlone(t *testing.T) { eachOf(t, open(t), few(), batchedEqualsAlone) }

func batchedEqualsAlone(_ *testing.T, b *steps.Bench) {
	lengths := []int{1, 2, 3, 127, 128, 131, 255, 256, 300}
	if exact(b) {
		lengths = []int{1, 2, 3, 129}
	}
	next := func(s *steps.Sequence, i int) step.Work {
		switch i % 3 {
		case 1:
			return s.Work(plan.ModeVerify, 3)
		case 2:
			return s.Work(plan.ModeExtend, 5)
		}
		return s.Work(plan.ModeDecode, 1)
	}
	b.BatchedEqualsAlone(lengths, next)
}

// A sequence that continues after pages of another sequence has the same bits as a sequence that computed these pages
// itself.
func TestRestoredEqualsComputed(t *testing.T) { eachOf(t, open(t), few(), restoredEqualsComputed) }

func restoredEqualsComputed(t *testing.T, b *steps.Bench) {
	first := b.Sequence(3, 780)
	want := b.Chunks(first, 301)
	for _, pages := range []int{1, 2, 3} {
		if exact(b) && pages < 3 {
			continue
		}
		st, err := b.Model.(*v41.Model).Restore(256*pages, first.Pages)
		if err != nil {
			t.Fatal(err)
		}
		s := &steps.Sequence{Tokens: first.Tokens, Pages: first.Pages, State: st}
		b.SameBits(fmt.Sprintf("behind %d pages", pages), b.Chunks(s, 100), want[256*pages:])
		st.Release()
	}
}

// If n tokens are verified, some of them are accepted and the sequence continues, logits and caches equal those of a
// sequence that never drafted. This holds whether or not a pair was open, and if a page ends among the drafts.
func TestRollbackEqualsNoDraft(t *testing.T) { rollbackEqualsNoDraft(t, open(t)) }

func rollbackEqualsNoDraft(t *testing.T, m *v41.Model) {
	b := steps.New(t, m, plan.Policy{KV: "fp8"})
	for _, prefix := range []int{5, 6, 254} {
		total := prefix + 9
		b.Reset()
		want := b.Chunks(b.Sequence(6, total), 0)
		bytes := b.Bytes()
		for kept := 1; kept <= 4; kept++ {
			b.Reset()
			s := b.Sequence(6, total)
			b.Step(s.Work(plan.ModeExtend, prefix))
			what := fmt.Sprintf("%d tokens, 4 drafted, %d kept", prefix, kept)
			w := s.Work(plan.ModeVerify, 4)
			w.Tokens = append([]int32(nil), w.Tokens...)
			for i := kept; i < 4; i++ {
				w.Tokens[i] = (w.Tokens[i] + 1) % int32(m.Config().Vocab) // a wrong draft
			}
			b.SameBits(what, b.Step(w)[:kept], want[prefix:prefix+kept])
			if err := s.State.Truncate(prefix + kept); err != nil {
				t.Fatalf("%s: %v", what, err)
			}
			b.SameBits(what, b.Chunks(s, 3), want[prefix+kept:])
			b.SameBytes(what, b.Bytes(), bytes)
		}
	}
}

// A step is refused if its state, its position or its previous tokens do not belong to its sequence, and the error
// names which.
func TestStatesAreChecked(t *testing.T) {
	b := steps.New(t, open(t), plan.Policy{KV: "fp8"})
	refused := func(want string, works ...step.Work) {
		t.Helper()
		if _, err := b.Runner.Run(works); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	s := b.Sequence(1, 300)
	w := s.Work(plan.ModeExtend, 8)
	w.State = nil
	refused("has no state of this model", w)
	w = s.Work(plan.ModeExtend, 8)
	w.Cached = 4
	refused("continues at position 4, but its state covers 0 tokens", w)
	w = s.Work(plan.ModeExtend, 8)
	refused("shares its state", w, w)
	b.Step(w)
	w = s.Work(plan.ModeExtend, 8)
	w.Before = w.Before[:1]
	refused("tokens before", w)
}

// A step is refused if a position that its tokens attend to has no window page, and the error names the page.
func TestWindowPagesAreChecked(t *testing.T) {
	b := steps.New(t, open(t), plan.Policy{KV: "fp8"})
	page := b.Config.Page
	s := b.Sequence(1, 2*page+44)
	b.Step(s.Work(plan.ModeExtend, 2*page-100))
	for _, c := range []struct {
		windows []int32
		want    string
	}{{[]int32{0, -1, 2}, "reaches page 1"},
		{[]int32{-1, steps.Pages, 2}, fmt.Sprintf("page %d in a cache", steps.Pages)},
		{[]int32{0}, "1 entries of window pages for 3 pages"}, {[]int32{-1, 1, 2}, ""}} {
		w := s.Work(plan.ModeExtend, 1)
		w.Windows = c.windows
		_, err := b.Runner.Run([]step.Work{w})
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("window pages %v: got %v, want %q", c.windows, err, c.want)
		}
	}
}

// The CPU kernels agree with the reference, within rounding.
func TestAgreesWithTheReference(t *testing.T) {
	if !*long {
		t.Skip("make long runs it: TestEveryWayToShare compares other models of this family with the reference")
	}
	p := plan.Policy{KV: "f32"}
	fast := steps.New(t, open(t), p)
	slow := steps.New(t, steps.Open[*v41.Model](t, testmodel.V41(t), "ref"), p)
	near(t, fast.Chunks(fast.Sequence(4, 140), 0), slow.Chunks(slow.Sequence(4, 140), 0))
}

// near checks rows of logits against those of the reference.
func near(t *testing.T, got, want [][]float32) {
	t.Helper()
	for r := range want {
		var gap, size float64
		for i, v := range want[r] {
			d := float64(v) - float64(got[r][i])
			gap, size = gap+d*d, size+float64(v)*float64(v)
		}
		if !(gap <= 1e-4*size) { // the square of 1 percent of the row's norm, because weights are bf16
			t.Fatalf("row %d is %g away from the reference's, which has the square %g", r, gap, size)
		}
	}
}
