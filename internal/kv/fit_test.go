package kv

import (
	"errors"
	"testing"

	"pgregory.net/rapid"
)

// Fit predicts what Open and Reserve would return, and leaves the pool and its counters unchanged.
func TestFitForetellsOpen(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p, err := New(Config{Pages: 12, PageTokens: 4, Reuse: rapid.Bool().Draw(t, "reuse"), Main: "rows"})
		if err != nil {
			t.Fatal(err)
		}
		var open []Sequence
		for range rapid.IntRange(0, 12).Draw(t, "sequences") {
			prompt := draw(t)
			s, _, err := p.Open(prompt, OpenOptions{})
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Reserve(len(prompt) - s.Len()); err == nil {
				if err := s.Commit(prompt[s.Len():]); err != nil {
					t.Fatal(err)
				}
			}
			if rapid.Bool().Draw(t, "stays") {
				open = append(open, s)
			} else if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		prompt, more, before := draw(t), rapid.IntRange(0, 9).Draw(t, "more"), p.Stats()
		need, available, err := p.Fit(prompt, more, OpenOptions{})
		if err != nil || p.Stats() != before {
			t.Fatalf("error %v; statistics %+v before, %+v after", err, before, p.Stats())
		}
		s, _, err := p.Open(prompt, OpenOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.Needs(len(prompt) - s.Len() + more); got != need || p.Available() != available {
			t.Fatalf("Fit returned %d needed and %d available pages, Open needed %d of %d", need, available, got,
				p.Available())
		}
		if err := s.Reserve(len(prompt) - s.Len() + more); (err == nil) != (need <= available) {
			t.Fatalf("%d needed of %d available pages: error %v", need, available, err)
		}
		for _, s := range append(open, s) {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
		if err := p.Check(); err != nil {
			t.Fatal(err)
		}
	})
}

// draw returns a random prompt that shares its prefix with others.
func draw(t *rapid.T) []int32 {
	list := make([]int32, rapid.IntRange(1, 20).Draw(t, "length"))
	family := rapid.Int32Range(0, 2).Draw(t, "family")
	for i := range list {
		list[i] = family
	}
	return list
}

func TestFitRefusesNegativeCounts(t *testing.T) {
	p, err := New(Config{Pages: 1, PageTokens: 1})
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := p.Fit([]int32{1}, -1, OpenOptions{}); !errors.Is(err, ErrArgument) {
		t.Errorf("error %v", err)
	}
	if _, _, err := p.Fit([]int32{1}, 1, OpenOptions{Compute: -1}); !errors.Is(err, ErrArgument) {
		t.Errorf("error %v", err)
	}
}
