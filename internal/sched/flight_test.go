package sched

import "testing"

// flyer returns a scheduler with pages of 4 tokens and sequences in flight.
func flyer(t *testing.T, pages int, prompts ...int) (*Scheduler, []*Sequence) {
	t.Helper()
	f, err := newFake(pages, 4, Limits{BatchTokens: 64, MaxRunning: 4})
	if err != nil {
		t.Fatal(err)
	}
	var list []*Sequence
	for i, n := range prompts {
		q := &Sequence{Tokens: make([]int32, n)}
		for k := range q.Tokens {
			q.Tokens[k] = int32(10*i + k)
		}
		if err := f.sched.Add(q); err != nil {
			t.Fatal(err)
		}
		list = append(list, q)
	}
	return f.sched, list
}

// batch returns a copy of the next batch, because the scheduler reuses its memory.
func batch(s *Scheduler) []Item { return append([]Item(nil), s.Schedule()...) }

// A sequence whose next token is sampled on the device is scheduled again before the token is known. Only tokens of
// finished passes are committed.
func TestTheNextBatchGoesOnBehindAFlight(t *testing.T) {
	s, list := flyer(t, 8, 6, 3)
	first := batch(s)
	if len(first) != 2 {
		t.Fatalf("%d items", len(first))
	}
	s.Started(&first[0], true)
	s.Started(&first[1], true)
	second := batch(s)
	// The batch begins with the shortest prompt, whose sequence is the oldest that decodes.
	for i, n := range []int{3, 6} {
		it := &second[1-i]
		if !it.Unknown || !it.Decode || it.Cached != n || !it.Last || it.Logits != 1 || len(it.Tokens) != 1 ||
			it.Seq.Cached() != 0 || 4*len(it.Pages) < n+1 {
			t.Errorf("after a prompt of %d tokens: item %+v, %d tokens cached", n, it, it.Seq.Cached())
		}
	}
	for i := range first {
		if err := s.Done(&first[i]); err != nil {
			t.Fatal(err)
		}
	}
	list[0].Tokens, list[1].Tokens = append(list[0].Tokens, 100), append(list[1].Tokens, 101)
	for i := range second {
		second[i].Resolve()
		s.Started(&second[i], i == 0)
	}
	if second[0].Tokens[0] != 100 || second[1].Tokens[0] != 101 || second[0].Unknown {
		t.Errorf("tokens %v and %v, want the sampled tokens", second[0].Tokens, second[1].Tokens)
	}
	// The second sequence ends with the batch in flight: the next batch contains only the first sequence.
	if third := batch(s); len(third) != 1 || third[0].Seq != list[0] || third[0].Cached != 7 {
		t.Errorf("items %+v", third)
	}
	// If no batch can be formed, Schedule returns no items, and no sequence is preempted.
	s.Remove(list[0])
	if fourth := batch(s); len(fourth) != 0 || s.Preemptions() != 0 || s.Running() != 1 {
		t.Errorf("items %+v, %d sequences preempted, %d running", fourth, s.Preemptions(), s.Running())
	}
	if err := s.Done(&second[1]); err != nil || list[1].Cached() != 4 {
		t.Errorf("%d tokens cached, error %v", list[1].Cached(), err)
	}
}

// A failed pass does not advance its sequences.
func TestDroppedItemsAreFormedAgain(t *testing.T) {
	s, list := flyer(t, 8, 6)
	first := batch(s)
	s.Started(&first[0], true)
	s.Drop(&first[0])
	again := batch(s)
	if len(again) != 1 || again[0].Unknown || again[0].Decode || again[0].Cached != 0 || len(again[0].Tokens) != 6 {
		t.Fatalf("items %+v", again)
	}
	if err := s.Done(&again[0]); err != nil || list[0].Cached() != 6 {
		t.Errorf("%d tokens cached, error %v", list[0].Cached(), err)
	}
}

// A preempted sequence is not admitted again before its items in flight have ended.
func TestPreemptedInFlight(t *testing.T) {
	s, list := flyer(t, 3, 4, 3)
	first := batch(s)
	for i := range first {
		s.Started(&first[i], true)
	}
	second := batch(s) // 4+1 and 3+1 tokens fit; after them both sequences need another page and no page is free
	for i := range first {
		if err := s.Done(&first[i]); err != nil {
			t.Fatal(err)
		}
		first[i].Seq.Tokens = append(first[i].Seq.Tokens, 1)
	}
	for i := range second {
		second[i].Resolve()
		s.Started(&second[i], true)
	}
	third := batch(s)
	if len(third) != 1 || third[0].Seq != list[0] || list[1].Preempted != 1 {
		t.Fatalf("items %+v, preempted %d times", third, list[1].Preempted)
	}
	s.Remove(list[0])
	if again := batch(s); len(again) != 0 || s.Waiting() != 1 {
		t.Fatalf("the sequence was admitted while in flight: %+v", again)
	}
	for i := range second {
		if second[i].Seq == list[1] {
			if err := s.Done(&second[i]); err != nil {
				t.Fatal(err)
			}
		}
	}
	list[1].Tokens = append(list[1].Tokens, 2)
	if again := batch(s); len(again) != 1 || again[0].Cached+len(again[0].Tokens) != 5 {
		t.Errorf("after the items in flight ended: %+v", again)
	}
}

// Drop restores a sequence to its state before its pass was enqueued: a prompt is not counted as decoding, and a
// decoding sequence is still counted as decoding.
func TestDropGivesBackWhatWas(t *testing.T) {
	s, list := flyer(t, 8, 6)
	q := list[0]
	first := batch(s)
	s.Started(&first[0], true)
	if s.Drop(&first[0]); q.ready || q.decoding() || q.flight != (flight{}) {
		t.Errorf("after the pass of its prompt failed: ready %v, in flight %+v", q.ready, q.flight)
	}
	again := batch(s)
	if err := s.Done(&again[0]); err != nil {
		t.Fatal(err)
	}
	q.Tokens = append(q.Tokens, 7)
	next := batch(s)
	s.Started(&next[0], true)
	if s.Drop(&next[0]); !q.ready || !q.decoding() || q.flight != (flight{}) {
		t.Errorf("after the pass of a decode failed: ready %v, in flight %+v", q.ready, q.flight)
	}
	if s.Drop(&next[0]); !q.ready || q.flight != (flight{}) {
		t.Errorf("after dropping an item that was not started: ready %v, in flight %+v", q.ready, q.flight)
	}
}
