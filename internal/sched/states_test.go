package sched

import (
	"testing"
	"time"

	"sparrow/internal/cost"
)

// Invariants of this file: calls about sequences that no longer run, and rules for rare states, have the right results.

// The crowded rank is that of the youngest sequence that shares its rank, or else that of the youngest sequence.
func TestTheCrowdedRank(t *testing.T) {
	for _, c := range []struct {
		ranks []int // rank of each running sequence, in order of arrival
		want  int
	}{{[]int{0}, 0}, {[]int{1}, 1}, {[]int{0, 1}, 1}, {[]int{1, 0}, 0}, {[]int{0, 0, 1}, 0}, {[]int{1, 1, 0}, 1},
		{[]int{0, 1, 1, 0}, 0}, {[]int{0, 1, 0, 1}, 1}} {
		f := newTestFake(t, 8, 4, Limits{BatchTokens: 8, MaxRunning: 4})
		o := f.sched.roster
		o.pools = append(o.pools, o.pools[0])
		for _, r := range c.ranks {
			o.running = append(o.running, &Sequence{rank: r})
		}
		if got := o.crowded(); got != c.want {
			t.Errorf("ranks %v: rank %d, want %d", c.ranks, got, c.want)
		}
	}
}

// Drafts are reserved, accepted and rejected only for running sequences. An item whose sequence has lost or filled its
// pages since is stale.
func TestItemsOfSequencesThatStopped(t *testing.T) {
	s, list := flyer(t, 8, 6)
	q := list[0]
	if n := s.ReserveDrafts(q, 2); n != 0 {
		t.Errorf("%d drafts of a waiting sequence have pages", n)
	}
	first := batch(s)
	if n := s.ReserveDrafts(q, 2); n != 0 || first[0].Stale() {
		t.Errorf("before its prompt was computed: %d drafts have pages, stale is %v", n, first[0].Stale())
	}
	if err := s.Done(&first[0]); err != nil || !first[0].Stale() {
		t.Errorf("a committed item: stale is %v, error %v", first[0].Stale(), err)
	}
	q.Tokens, q.Drafts = append(q.Tokens, 7), append(q.Drafts, 8, 9)
	next := batch(s)
	if got := next[0].DraftTokens(); len(got) != 2 || got[0] != 8 || got[1] != 9 || next[0].Stale() {
		t.Errorf("drafts %v, want 8 and 9", got)
	}
	s.Restart(q)
	if !next[0].Stale() {
		t.Error("the item of a sequence that was queued again is not stale")
	}
	if err := s.Accept(&next[0]); err != nil || next[0].Kept() != 1 {
		t.Errorf("a draft of a waiting sequence: error %v, %d tokens are kept", err, next[0].Kept())
	}
	if err := s.Reject(&next[0]); err != nil {
		t.Errorf("drafts of a waiting sequence: error %v", err)
	}
}

// Only the last item of a prompt samples a token, and only an unknown token is resolved.
func TestItemsThatSampleNothing(t *testing.T) {
	s, list := flyer(t, 32, 100)
	first := batch(s)
	if first[0].Last || len(first[0].Tokens) != 64 {
		t.Fatalf("the item %+v has the whole prompt", first[0])
	}
	if first[0].Resolve(); len(first[0].Tokens) != 64 {
		t.Errorf("%d of 64 tokens are left after Resolve", len(first[0].Tokens))
	}
	s.Started(&first[0], true)
	if q := list[0]; q.ready || q.flight != (flight{items: 1, tokens: 64}) {
		t.Errorf("ready is %v, in flight %+v", q.ready, q.flight)
	}
}

// If a pass fails after its sequence was suspended, the state of the sequence does not change.
func TestDroppedAfterASuspension(t *testing.T) {
	s, list := flyer(t, 8, 6)
	q := list[0]
	first := batch(s)
	if err := s.Done(&first[0]); err != nil {
		t.Fatal(err)
	}
	q.Tokens = append(q.Tokens, 7)
	next := batch(s)
	s.Started(&next[0], true)
	s.Restart(q)
	if s.Drop(&next[0]); q.ready || q.flight != (flight{}) {
		t.Errorf("ready is %v, in flight %+v; want the state of a prompt", q.ready, q.flight)
	}
}

// A suspended sequence with tokens in flight, or whose pages are being fetched, does not keep its pages. A removed
// sequence releases the pages that it has kept.
func TestPagesThatAreNotKept(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Sequence)
		kept   int
	}{
		"a decoding sequence": {func(*Sequence) {}, 1},
		"in flight":           {func(q *Sequence) { q.flight.items = 1 }, 0},
		"restored":            {func(q *Sequence) { q.restoring = true }, 0},
	} {
		f := newTestFake(t, 8, 4, Limits{BatchTokens: 64, MaxRunning: 4, KeepSuspended: true})
		q := mustAdd(t, f, &Sequence{Tokens: prompt(0, 9)}, 20)
		mustStep(t, f)
		c.change(q)
		f.sched.roster.suspend(q)
		if got := f.sched.Kept(); got != c.kept {
			t.Fatalf("%s: %d sequences have kept their pages, want %d", name, got, c.kept)
		}
		if c.kept > 0 {
			// Ten tokens, of which nine are in three pages, and one more token fit in these pages.
			if need, available, err := f.sched.roster.fit(f.pool, q); need != 0 || available != 5 || err != nil {
				t.Errorf("%s: %d more pages of %d are needed, error %v; want none of 5", name, need, available, err)
			}
		}
		if f.remove(q); f.sched.Kept() != 0 || f.pool.Available() != 8 {
			t.Errorf("%s: after Remove, %d sequences have pages, %d of 8 pages are available", name, f.sched.Kept(),
				f.pool.Available())
		}
	}
}

// No background sequence is suspended for another background sequence, but the youngest is for any other sequence.
func TestTheBackgroundIsNotSuspendedForItself(t *testing.T) {
	f := newTestFake(t, 64, 4, Limits{BatchTokens: 64, MaxRunning: 2, MaxPrompts: 4})
	var running []*Sequence
	for i, tenant := range []string{"a", "b"} {
		q := &Sequence{Tokens: prompt(int32(100*i), 5), Tenant: tenant, Background: true}
		running = append(running, mustAdd(t, f, q, 40))
	}
	for f.sched.Running() < 2 {
		mustStep(t, f)
	}
	late := mustAdd(t, f, &Sequence{Tokens: prompt(300, 5), Tenant: "c", Background: true}, 10)
	if got := f.sched.roster.excess(late); got != nil {
		t.Error("a background sequence is suspended for another one")
	}
	other := mustAdd(t, f, &Sequence{Tokens: prompt(400, 5), Tenant: "d"}, 10)
	if got := f.sched.roster.excess(other); got != running[1] {
		t.Errorf("%+v is suspended, want the youngest background sequence", got)
	}
}

// Only rows of prompts that request several rows of logits take from the limit of prompt logits.
func TestLogitsOfAChunk(t *testing.T) {
	f := newTestFake(t, 64, 4, Limits{BatchTokens: 64, MaxRunning: 2, PromptLogits: 9})
	q := mustAdd(t, f, &Sequence{Tokens: prompt(0, 10)}, 11)
	f.sched.roster.admit(0)
	for _, c := range []struct{ logits, n, want int }{{0, 10, 0}, {1, 10, 0}, {2, 10, 2}, {2, 9, 1}, {2, 8, 0},
		{4, 10, 4}, {4, 7, 1}, {4, 6, 0}} {
		q.Logits = c.logits
		if got := promptLogits(q, c.n); got != c.want {
			t.Errorf("%d of 10 rows of logits, a chunk of %d tokens: %d rows, want %d", c.logits, c.n, got, c.want)
		}
	}
}

// Between reports the decodes that it returns. It leaves out sequences whose rows do not fit, and background sequences
// while prompts of other sequences are computed.
func TestTheLoadBetweenOperations(t *testing.T) {
	for name, c := range map[string]struct {
		change func(*Sequence)
		want   int
	}{
		"streams":      {func(*Sequence) {}, 2},
		"a background": {func(q *Sequence) { q.Background = true }, 1},
		"no rows":      {func(q *Sequence) { q.Record = Span{0, 1000} }, 1},
	} {
		s, streams := divided(t, 1000, 2)
		if err := s.Add(&Sequence{Tokens: make([]int32, 300)}); err != nil {
			t.Fatal(err)
		}
		if items := s.Schedule(); len(items) != 1 || !s.Load().Divided() {
			t.Fatalf("%s: %d items, divided %v", name, len(items), s.Load().Divided())
		}
		c.change(streams[0])
		items, load := s.Between()
		var want cost.Work
		for _, it := range items {
			want.Decode.Add(1, it.Cached)
		}
		if len(items) != c.want || load.load.Work != want {
			t.Errorf("%s: %d items, want %d; work %+v, want %+v", name, len(items), c.want, load.load.Work, want)
		}
	}
}

// A chunk that just fits is computed with the streams, whether it ends its prompt or fills the batch; a prompt of one
// more token has its own batch.
func TestAChunkThatJustFits(t *testing.T) {
	for _, c := range []struct {
		prompt, batch int
		divided       bool
	}{{SmallestChunk, 512, false}, {SmallestChunk + 1, 512, true}, {1000, SmallestChunk + 2, false}} {
		s, _ := divided(t, 1000, 2)
		s.roster.limits.MaxStall, s.roster.limits.BatchTokens = time.Hour, c.batch
		if err := s.Add(&Sequence{Tokens: make([]int32, c.prompt)}); err != nil {
			t.Fatal(err)
		}
		if s.Schedule(); s.Load().Divided() != c.divided {
			t.Errorf("a prompt of %d tokens, batches of %d: divided is %v", c.prompt, c.batch, s.Load().Divided())
		}
	}
}

// A sequence that has kept its pages gets no drafts, its item is stale, and Restart lets no sequence keep its pages.
func TestSequencesThatKeepTheirPages(t *testing.T) {
	f := newTestFake(t, 8, 4, Limits{BatchTokens: 64, MaxRunning: 4, KeepSuspended: true})
	q := mustAdd(t, f, &Sequence{Tokens: prompt(0, 9)}, 20)
	mustStep(t, f)
	it := f.sched.Schedule()[0]
	f.sched.roster.suspend(q)
	if n := f.sched.ReserveDrafts(q, 2); n != 0 || !it.Stale() || f.sched.Kept() != 1 {
		t.Errorf("%d drafts have pages, stale is %v, %d sequences have kept their pages", n, it.Stale(), f.sched.Kept())
	}
	it = f.sched.Schedule()[0]
	if f.sched.Restart(q); f.sched.Kept() != 0 || f.pool.Available() != 8 || !it.Stale() {
		t.Errorf("after Restart, %d sequences have pages, %d of 8 pages are available", f.sched.Kept(),
			f.pool.Available())
	}
}
