package sched

import (
	"slices"
	"testing"

	"sparrow/internal/kv"
)

// A sequence is admitted on the rank that caches the longest prefix of its tokens, or else on the rank with the fewest
// sequences. If a rank has too few pages, a sequence of that rank is preempted.
func TestRanksOfSequences(t *testing.T) {
	f, err := newRanked(2, 4, 4, kv.Window{}, Limits{BatchTokens: 32, MaxRunning: 8})
	if err != nil {
		t.Fatal(err)
	}
	text := func(seed, n int) []int32 {
		out := make([]int32, n)
		for i := range out {
			out[i] = int32(seed*100 + i)
		}
		return out
	}
	add := func(q *Sequence, goal int) *Sequence {
		t.Helper()
		if err := f.add(q, goal); err != nil {
			t.Fatal(err)
		}
		return q
	}
	step := func() {
		t.Helper()
		if _, err := f.step(); err != nil {
			t.Fatal(err)
		}
	}
	a, b := add(&Sequence{Tokens: text(1, 5)}, 16), add(&Sequence{Tokens: text(2, 5)}, 16)
	step()
	if a.Rank() != 0 || b.Rank() != 1 {
		t.Errorf("the first two sequences are on ranks %d and %d", a.Rank(), b.Rank())
	}
	// The first page of c equals the first page of b.
	c := add(&Sequence{Tokens: append(text(2, 4), 7, 8)}, 12)
	step()
	if c.Rank() != 1 || c.Match.Tokens != 4 {
		t.Errorf("the sequence is on rank %d with %d cached tokens, want rank 1 with 4", c.Rank(), c.Match.Tokens)
	}
	for f.sched.Preemptions() == 0 && len(f.goals) > 0 {
		step()
	}
	if c.Preempted != 1 || a.Preempted+b.Preempted != 0 {
		t.Errorf("the sequences were preempted %d, %d and %d times, want only the youngest of rank 1", a.Preempted,
			b.Preempted, c.Preempted)
	}
	for len(f.goals) > 0 {
		step()
	}
	if _, err := New(nil, Limits{BatchTokens: 1, MaxRunning: 1}); err == nil {
		t.Error("a scheduler without pools was accepted")
	}
}

// If no rank has enough pages, sequences release pages on the rank with the smallest shortage, or on the first of
// several ranks with equal shortages.
func TestPagesAreGivenUpOnTheNearestRank(t *testing.T) {
	for _, c := range []struct {
		prompts [4]int // numbers of tokens; the scheduler places these sequences on ranks 0, 1, 0, 1
		nearest int
	}{{[4]int{9, 5, 9, 5}, 1}, {[4]int{5, 9, 5, 9}, 0}, {[4]int{9, 9, 9, 9}, 0}} {
		f, err := newRanked(2, 8, 4, kv.Window{}, Limits{BatchTokens: 64, MaxRunning: 8, MaxPrompts: 4})
		if err != nil {
			t.Fatal(err)
		}
		var running []*Sequence
		for i, n := range c.prompts {
			q := &Sequence{Tokens: make([]int32, n), Tenant: "a", Request: i}
			for at := range q.Tokens {
				q.Tokens[at] = int32(100*i + at)
			}
			if err := f.add(q, n+9); err != nil {
				t.Fatal(err)
			}
			running = append(running, q)
			step(t, f)
			if q.Rank() != i%2 {
				t.Fatalf("sequence %d is on rank %d", i, q.Rank())
			}
		}
		late := &Sequence{Tokens: make([]int32, 28), Tenant: "b", Request: "late"}
		if err := f.add(late, 29); err != nil {
			t.Fatal(err)
		}
		running[0].request.serve(1) // makes the tenant of the sequence late the one that was served less
		o := f.sched.roster
		if o.canAdmit(late) {
			t.Fatalf("prompts %v: a rank has enough pages", c.prompts)
		}
		if got := o.nearest(late); got != c.nearest {
			t.Errorf("prompts %v: nearest returned rank %d, want %d", c.prompts, got, c.nearest)
		}
		if got, want := o.excess(late), running[2+c.nearest]; got != want {
			t.Errorf("prompts %v: sequence %d releases its pages, want %d", c.prompts, slices.Index(running, got),
				slices.Index(running, want))
		}
	}
}
