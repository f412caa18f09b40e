package v4_test

import (
	"context"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/model"
	"sparrow/internal/model/synth"
	"sparrow/internal/model/v4"
	"sparrow/internal/step"
	"sparrow/internal/testkit/steps"
	"sparrow/kernel"
	"sparrow/plan"
)

var _ model.Drafter = (*v4.Model)(nil)

// draftBench returns a small model with a drafting block, allocated for drafts.
func draftBench(t *testing.T, kernels string) *steps.Bench {
	t.Helper()
	return draftBenchOn(t, steps.Device(t, kernels))
}

func draftBenchOn(t *testing.T, dev kernel.Device) *steps.Bench {
	t.Helper()
	one := 1
	c, err := synth.New("speck", []byte(speckConfig), synth.Options{Seed: 2, NextN: &one})
	if err != nil {
		t.Fatal(err)
	}
	dir := filepath.Join(t.TempDir(), "speck")
	if err := c.Write(context.Background(), dir, nil, nil); err != nil {
		t.Fatal(err)
	}
	p := plan.Policy{KV: "fp8"}
	p.Speculation.Tokens = 5
	return steps.New(t, steps.OpenOn[*v4.Model](t, dir, dev), p)
}

// drafted computes a prompt in chunks, with a pass of the drafting block after each chunk, and then a chain of three
// drafts with given tokens. It returns the logits of the chain.
func drafted(b *steps.Bench, s *steps.Sequence, n, chunk int) [][]float32 {
	b.Helper()
	var out [][]float32
	draft := func(d step.Draft, chained bool) {
		d.Pages, d.State = s.Pages, s.State
		res, err := b.Runner.Draft([]step.Draft{d}, chained)
		if err != nil {
			b.Fatal(err)
		}
		if d.Logits {
			out = append(out, append([]float32(nil), res.Row(0)...))
		}
	}
	for at := 0; at < n; at += chunk {
		end := min(at+chunk, n)
		b.Step(s.Work(plan.ModeExtend, end-at))
		draft(step.Draft{Kind: plan.ModeExtend, Tokens: s.Tokens[at+1 : end+1], Cached: at, Logits: end == n}, false)
	}
	for i := range 2 {
		draft(step.Draft{Kind: plan.ModeDraft, Tokens: s.Tokens[n+1+i : n+2+i], Cached: n + i, Logits: true}, true)
	}
	return out
}

// The drafting block attends to the same window after a prompt, whatever its chunks; rejected rows of a longer draft
// have no effect.
func TestDraftsDoNotDependOnChunks(t *testing.T) { testDraftsDoNotDependOnChunks(draftBench(t, "cpu")) }

func testDraftsDoNotDependOnChunks(b *steps.Bench) {
	for _, n := range []int{3, 127, 128, 129, 300} {
		b.Reset()
		want := drafted(b, b.Sequence(1, n+8), n, n)
		for _, chunk := range []int{7, 100, 131} {
			b.Reset()
			b.SameBits("chunked", drafted(b, b.Sequence(1, n+8), n, chunk), want)
		}
		b.Reset()
		s := b.Sequence(1, n+8)
		drafted(b, s, n, n) // a chain whose drafts are rejected
		if err := s.State.Truncate(0); err != nil {
			b.Fatal(err)
		}
		b.SameBits("after rejected drafts", drafted(b, s, n, 50), want)
	}
}

// The reference and the fast kernels give the same drafts.
func TestDraftsAgreeWithTheReference(t *testing.T) {
	fast, slow := draftBench(t, "cpu"), draftBench(t, "ref")
	got, want := drafted(fast, fast.Sequence(2, 150), 140, 60), drafted(slow, slow.Sequence(2, 150), 140, 60)
	for r := range want {
		for i := range want[r] {
			if d := got[r][i] - want[r][i]; d > 0.05 || d < -0.05 {
				t.Fatalf("row %d logit %d is %v, the reference gives %v", r, i, got[r][i], want[r][i])
			}
		}
	}
}

// With more states than slots the rings are enlarged. Open sequences continue, but lose the window of the drafting
// block.
func TestRingsOfDraftsGrow(t *testing.T) {
	b := draftBench(t, "cpu")
	s := b.Sequence(1, 60)
	drafted(b, s, 40, 40)
	for range 9 {
		b.NewState()
	}
	b.Step(s.Work(plan.ModeExtend, 3))
	if _, err := b.Runner.Draft([]step.Draft{
		{Kind: plan.ModeDraft, Tokens: s.Tokens[41:44], Cached: 40, Pages: s.Pages, State: s.State, Logits: true}},
		false); err != nil {
		t.Errorf("after growth: %v", err)
	}
}

// After a failed drafting pass, later passes do not read the entries of that pass, which may not have been written.
func TestDraftsAfterAFailedPass(t *testing.T) {
	dev := &faulty{Device: steps.Device(t, "cpu")}
	b := draftBenchOn(t, dev)
	var got [2][][]float32
	for i, fails := range []bool{false, true} {
		b.Reset()
		s := b.Sequence(1, 60)
		b.Step(s.Work(plan.ModeExtend, 40))
		d := step.Draft{Kind: plan.ModeExtend, Tokens: s.Tokens[1:41], Pages: s.Pages, State: s.State}
		if dev.fails, dev.sublayers = fails, 0; fails {
			_, err := b.Runner.Draft([]step.Draft{d}, false)
			if err == nil || !strings.Contains(err.Error(), "feed-forward of the drafting block: stopped on purpose") {
				t.Fatalf("got %v, want the device's error", err)
			}
		}
		dev.fails = false
		b.Step(s.Work(plan.ModeExtend, 3))
		d.Kind, d.Tokens, d.Cached, d.Logits = plan.ModeDraft, s.Tokens[41:44], 40, true
		res, err := b.Runner.Draft([]step.Draft{d}, false)
		if err != nil {
			t.Fatal(err)
		}
		got[i] = append(got[i], slices.Clone(res.Row(0)))
	}
	b.SameBits("after a failed pass, like without one", got[1], got[0])
}

func TestDraftsAreChecked(t *testing.T) {
	b := draftBench(t, "cpu")
	s := b.Sequence(1, 20)
	b.Step(s.Work(plan.ModeExtend, 8))
	for want, d := range map[string]step.Draft{
		"no state of this model": {Kind: plan.ModeDraft, Tokens: s.Tokens[1:9], Pages: s.Pages, Logits: true},
		"computed only 8 rows":   {Kind: plan.ModeDraft, Tokens: s.Tokens[1:10], Pages: s.Pages, State: s.State},
	} {
		if _, err := b.Runner.Draft([]step.Draft{d}, false); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want %q", err, want)
		}
	}
	plain := steps.New(t, b.Model, plan.Policy{KV: "fp8"}) // the cache of this bench was allocated without drafts
	s = plain.Sequence(1, 20)
	plain.Step(s.Work(plan.ModeExtend, 8))
	if _, err := plain.Runner.Draft(
		[]step.Draft{{Kind: plan.ModeDraft, Tokens: s.Tokens[1:9], Pages: s.Pages, State: s.State}},
		false); err == nil ||
		!strings.Contains(err.Error(), "has no cache") {
		t.Errorf("without a cache: %v", err)
	}
	other := steps.Open[*v4.Model](t, speck(t), "cpu") // this checkpoint has no drafting block
	if err := other.DraftHead(); err == nil || !strings.Contains(err.Error(), "mtp.0.") {
		t.Errorf("without the block: %v", err)
	}
}
