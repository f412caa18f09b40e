package sched

import (
	"errors"
	"testing"

	"sparrow/internal/kv"
)

// A sequence that is being restored is in no batch. Its pages are reserved and committed one after the other, each with
// its window page, up to the rows that must be computed; then the sequence continues after these pages.
func TestRestoredPages(t *testing.T) {
	for name, w := range map[string]kv.Window{"": {}, "windows": {Pages: 8, Tokens: 6}} {
		t.Run(name, func(t *testing.T) {
			f, err := newWindowed(12, 4, w, Limits{BatchTokens: 32, MaxRunning: 4, PromptLogits: 8})
			if err != nil {
				t.Fatal(err)
			}
			s := f.sched
			var told []*Sequence
			s.OnAdmit(func(q *Sequence) bool { told = append(told, q); return q.Tenant == "kept" })
			kept := mustAdd(t, f, &Sequence{Tokens: prompt(100, 15), Tenant: "kept", Logits: 3}, 18)
			other := mustAdd(t, f, &Sequence{Tokens: prompt(500, 6), Tenant: "other"}, 20)
			if items := mustStep(t, f); find(items, kept) != nil || find(items, other) == nil || !s.Restoring() ||
				len(told) != 2 {
				t.Fatalf("OnAdmit was called for %d sequences, Restoring is %v", len(told), s.Restoring())
			}
			if _, _, err := s.RestorePage(other); !errors.Is(err, ErrSequence) {
				t.Errorf("a page of a sequence that is not restored: error %v", err)
			}
			at := 0
			for ; at < 3; at++ {
				page, window, err := s.RestorePage(kept)
				if err != nil {
					t.Fatal(err)
				}
				if page != kept.Pages()[at] || (window >= 0) != (w.Pages > 0) || w.Pages > 0 &&
					window != kept.Windows()[at] {
					t.Errorf("entry %d is page %d with window page %d, but the sequence has pages %v and window "+
						"pages %v", at, page, window,
						kept.Pages(), kept.Windows())
				}
				if kept.Cached() != 4*at {
					t.Errorf("%d tokens are in the pool before page %d is committed", kept.Cached(), at)
				}
				fillPage(f, kept, page, window, at)
				if err := s.Restored(kept); err != nil || kept.Cached() != 4*(at+1) {
					t.Fatalf("after page %d, %d tokens are in the pool, error %v", at, kept.Cached(), err)
				}
			}
			if _, _, err := s.RestorePage(kept); !errors.Is(err, ErrSequence) {
				t.Errorf("a page with rows whose logits are requested: error %v", err)
			}
			if find(mustStep(t, f), kept) != nil {
				t.Error("the sequence is in a batch before EndRestore")
			}
			s.EndRestore(kept)
			if it := find(mustStep(t, f), kept); it == nil || it.Cached != 12 || it.Logits != 3 || s.Restoring() {
				t.Errorf("the sequence continues with %+v", it)
			}
			for len(f.goals) > 0 {
				mustStep(t, f)
			}
		})
	}
}

// fillPage writes the rows of a restored page as the fake's model would write them.
func fillPage(f *fake, q *Sequence, page, window int32, at int) {
	it := &Item{Seq: q, Tokens: q.Tokens[:(at+1)*f.size]}
	for p, h := range hashes(it) {
		if p < at*f.size {
			continue
		}
		f.slots[int(page)*f.size+p%f.size] = h
		if window >= 0 {
			f.seen[int(window)*f.size+p%f.size] = h
		}
	}
}

// A page is restored only if at least one row, and all rows with logits, remain to be computed. If pages are missing,
// the sequence does not change.
func TestRestoredPagesThatDoNotFit(t *testing.T) {
	for _, c := range []struct {
		tokens, logits, pages int
	}{{8, 0, 1}, {9, 0, 2}, {9, 1, 2}, {9, 2, 1}, {12, 4, 2}, {12, 5, 1}} {
		f := newTestFake(t, 8, 4, Limits{BatchTokens: 32, MaxRunning: 4, PromptLogits: 8})
		f.sched.OnAdmit(func(*Sequence) bool { return true })
		q := mustAdd(t, f, &Sequence{Tokens: prompt(100, c.tokens), Logits: c.logits}, 20)
		mustStep(t, f)
		n := 0
		for ; ; n++ {
			if _, _, err := f.sched.RestorePage(q); err != nil {
				break
			}
			if err := f.sched.Restored(q); err != nil {
				t.Fatal(err)
			}
		}
		if n != c.pages {
			t.Errorf("%d pages of %d tokens are restored, %d rows of logits are requested; want %d pages", n, c.tokens,
				c.logits,
				c.pages)
		}
	}
	f := newTestFake(t, 4, 4, Limits{BatchTokens: 32, MaxRunning: 4})
	f.sched.OnAdmit(func(q *Sequence) bool { return q.Tenant == "kept" })
	q := mustAdd(t, f, &Sequence{Tokens: prompt(100, 9), Tenant: "kept"}, 12)
	mustStep(t, f)
	hog, _, err := f.pool.Open(nil, kv.OpenOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := hog.Reserve(16); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.sched.RestorePage(q); !errors.Is(err, kv.ErrFull) || len(q.Pages()) != 0 || q.Cached() != 0 {
		t.Errorf("a full pool: error %v, the sequence has %d pages", err, len(q.Pages()))
	}
	if err := hog.Close(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := f.sched.RestorePage(q); err != nil {
		t.Errorf("after pages were released: error %v", err)
	}
}
