package sched

import (
	"math/rand/v2"
	"testing"
)

// A background sequence releases its place and its pages for any other sequence, waits while prompts of other sequences
// are computed, decodes in batches with other sequences, and ends.
func TestTheBackgroundGivesWay(t *testing.T) {
	for name, pages := range map[string]int{"by places": 1000, "by pages": 24} {
		t.Run(name, func(t *testing.T) {
			f, err := newFake(pages, 4, Limits{BatchTokens: 16, MaxRunning: 4, MaxPrompts: 2})
			if err != nil {
				t.Fatal(err)
			}
			for i := range 12 {
				q := &Sequence{Tokens: []int32{1, 2, int32(i + 3)}, Tenant: "batch", Request: i, Background: true}
				if err := f.add(q, 16); err != nil {
					t.Fatal(err)
				}
			}
			for range 6 {
				step(t, f)
			}
			long := &Sequence{Tokens: make([]int32, 40), Tenant: "a", Request: "long"}
			for i := range long.Tokens {
				long.Tokens[i] = int32(100 + i)
			}
			if err := f.add(long, 60); err != nil {
				t.Fatal(err)
			}
			for at := 0; at < 40; at += 16 { // the batches contain only this prompt until its first token
				items := step(t, f)
				if len(items) != 1 || items[0].Seq != long {
					t.Fatalf("%d items in the batch of a prompt, the first of tenant %q", len(items),
						items[0].Seq.Tenant)
				}
			}
			if items := step(t, f); len(items) < 2 {
				t.Errorf("%d items in a batch with a decoding sequence, want also the background sequence", len(items))
			}
			for len(f.goals) > 0 {
				step(t, f)
			}
			if long.Preempted > 0 {
				t.Errorf("the sequence was suspended %d times for the background", long.Preempted)
			}
		})
	}
}

// A background sequence waits while a prompt of another tenant is computed or can be admitted. It does not wait while
// that prompt waits for pages that are fetched, because then no sequence would run.
func TestTheBackgroundRunsWhilePagesAreFetched(t *testing.T) {
	f := newTestFake(t, 100, 4, Limits{BatchTokens: 16, MaxRunning: 4})
	f.sched.OnAdmit(func(q *Sequence) bool { return q.Tenant == "kept" })
	behind := mustAdd(t, f, &Sequence{Tokens: prompt(500, 40), Tenant: "batch", Background: true}, 42)
	kept := mustAdd(t, f, &Sequence{Tokens: prompt(100, 30), Tenant: "kept"}, 32)
	mustStep(t, f) // this step admits the prompt
	for i := range 2 {
		if items := mustStep(t, f); find(items, kept) != nil || find(items, behind) == nil {
			t.Errorf("batch %d while pages are fetched: prompt %v, background %v", i, find(items, kept) != nil,
				find(items, behind) != nil)
		}
	}
	f.sched.EndRestore(kept)
	for i := range 2 {
		if items := mustStep(t, f); find(items, kept) == nil || find(items, behind) != nil {
			t.Errorf("batch %d of the prompt: prompt %v, background %v", i, find(items, kept) != nil,
				find(items, behind) != nil)
		}
	}
	for len(f.goals) > 0 {
		mustStep(t, f)
	}
}

// Random background and foreground sequences all end.
func TestTheBackgroundBesideAnything(t *testing.T) {
	for seed := range uint64(40) {
		d := rand.New(rand.NewPCG(seed, 7))
		f, err := newFake(20+d.IntN(60), 4, Limits{BatchTokens: 8 + d.IntN(40), MaxRunning: 2 + d.IntN(6),
			MaxPrompts: 1 + d.IntN(3), KeepSuspended: d.IntN(2) == 0})
		if err != nil {
			t.Fatal(err)
		}
		for added := 0; added < 60 || len(f.goals) > 0; {
			for ; added < 60 && d.IntN(3) == 0; added++ {
				q := &Sequence{Tokens: make([]int32, 1+d.IntN(40)), Tenant: string(rune('a' + d.IntN(3))),
					Request: added}
				if d.IntN(2) == 0 {
					q.Tenant, q.Background = "batch", true
				}
				for i := range q.Tokens {
					q.Tokens[i] = int32(d.IntN(3))
				}
				if err := f.add(q, len(q.Tokens)+1+d.IntN(20)); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
	}
}
