package sched

import "testing"

// OnFree is called exactly once each time that a sequence releases its pages. Restart queues a sequence at its place by
// arrival.
func TestOnFreeHearsOfPreemptionRestartAndRemoval(t *testing.T) {
	f, err := newFake(8, 4, Limits{BatchTokens: 8, MaxRunning: 4})
	if err != nil {
		t.Fatal(err)
	}
	freed := map[*Sequence]int{}
	f.sched.OnFree(func(q *Sequence) { freed[q]++ })
	a, b, c := &Sequence{Tokens: make([]int32, 4)}, &Sequence{Tokens: make([]int32, 4)},
		&Sequence{Tokens: make([]int32, 4)}
	for _, q := range []*Sequence{a, b} {
		if err := f.add(q, 8); err != nil {
			t.Fatal(err)
		}
	}
	if items := f.sched.Schedule(); len(items) != 2 {
		t.Fatalf("%d items, want both sequences", len(items))
	}
	if err := f.add(c, 8); err != nil {
		t.Fatal(err)
	}
	f.sched.Restart(a)
	f.sched.Restart(a) // has no effect, because a waits already
	f.sched.Restart(c) // has no effect, because c holds no pages
	if freed[a] != 1 || freed[c] != 0 || f.sched.Running() != 1 || f.sched.roster.waiting[0] != a {
		t.Errorf("after Restart: freed %v, %d running; want the oldest sequence at the head of the queue", freed,
			f.sched.Running())
	}
	f.sched.Remove(c) // c never ran
	f.sched.Remove(b)
	f.sched.Remove(b)
	if freed[b] != 1 || freed[c] != 0 {
		t.Errorf("after Remove: freed %v, want b once and c never", freed)
	}
	if items := f.sched.Schedule(); len(items) != 1 || items[0].Seq != a || a.Preempted != 1 {
		t.Errorf("items %+v; want an item of the restarted sequence", items)
	}
	if err := f.pool.Check(); err != nil {
		t.Error(err)
	}
}
