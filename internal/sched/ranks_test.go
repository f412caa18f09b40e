package sched

import (
	"testing"

	"sparrow/internal/kv"
)

// A sequence is admitted on the rank that caches the longest prefix of its tokens, else on the rank with the fewest
// sequences; if pages are missing, a sequence of the same rank is preempted.
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
		t.Errorf("the first two are on ranks %d and %d", a.Rank(), b.Rank())
	}
	// The first page of c equals the first page of b.
	c := add(&Sequence{Tokens: append(text(2, 4), 7, 8)}, 12)
	step()
	if c.Rank() != 1 || c.Match.Tokens != 4 {
		t.Errorf("rank %d with %d tokens found, want rank 1 with 4", c.Rank(), c.Match.Tokens)
	}
	for f.sched.Preemptions() == 0 && len(f.goals) > 0 {
		step()
	}
	if c.Preempted != 1 || a.Preempted+b.Preempted != 0 {
		t.Errorf("preempted %d, %d and %d times, want the youngest of rank 1", a.Preempted, b.Preempted, c.Preempted)
	}
	for len(f.goals) > 0 {
		step()
	}
	if _, err := New(nil, Limits{BatchTokens: 1, MaxRunning: 1}); err == nil {
		t.Error("a scheduler without pools")
	}
}
