package engine

import (
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"sparrow/internal/kv/tier"
	"sparrow/internal/testkit/await"
	"sparrow/internal/testkit/respserver"
	"sparrow/internal/testmodel"
)

// Invariants of this file: engines that share a store give the answers of lone runs, even if the store fails, and no
// request waits for the store longer than the limit.

// written waits until the store has received the given number of pages.
func written(t *testing.T, s *respserver.Server, pages int) {
	t.Helper()
	await.True(t, fmt.Sprintf("%d pages are in the store", pages), func() bool { return s.Len() >= pages })
}

func TestAnotherEnginesPagesAreTheSameBits(t *testing.T) {
	for _, f := range families {
		if f.name != "v32-fp8-656" && f.name != "v4-fp8" {
			continue // the tests of the other tiers include the pages of these models
		}
		t.Run(f.name, func(t *testing.T) {
			if raceEnabled && !f.racesToo {
				t.Skip("the test of another model covers the same races")
			}
			store := respserver.Start(t)
			pages := max(f.pages, 256/f.page)
			r := Request{ID: "r", Prompt: tokens(1, pages*f.page+f.page/2), Sampling: greedy(), MaxTokens: 4,
				IgnoreEOS: true, Trace: true}
			c := tiered(f.kv, pages+2, f.page, tier.Options{StoreURL: store.URL()})
			wantRows, gotRows := keepLogits(), keepLogits()
			first := startTiered(t, f.dir(t), c, wantRows.watch)
			want := generate(t, first, r)
			written(t, store, pages)
			second := startTiered(t, f.dir(t), c, gotRows.watch, checked(t))
			got := generate(t, second, r)
			sameTokens(t, "with pages of another engine", got.Choices[0], want.Choices[0])
			sameRows(t, gotRows, wantRows)
			if m := got.Trace.Restored; m.Tokens != pages*f.page || m.Tiers["store"] != m.Tokens || m.Stop != "" {
				t.Errorf("%+v", m)
			}
			if st := second.Stats().Tiers; st.Tiers[0].Hits != int64(pages) || st.Tiers[0].Stored != 0 {
				t.Errorf("%+v", st)
			}
			other := c
			other.Weights.Whole = &tier.Fingerprint{9}
			if got := generate(t, startTiered(t, f.dir(t), other), r); got.Usage.CachedTokens != 0 {
				t.Errorf("an engine with other weights found %d tokens, want 0", got.Usage.CachedTokens)
			}
		})
	}
}

// If a store fails under load, in each of its failure modes, every request ends with the right answer.
func TestAStoreThatFailsCostsTimeAlone(t *testing.T) {
	store := respserver.Start(t)
	var list []Request
	for i := range 6 {
		list = append(list, Request{Prompt: slices.Concat(tokens(i%3, 384), tokens(20+i, 40+11*i)), Sampling: greedy(),
			MaxTokens: 3, IgnoreEOS: true, Trace: true})
	}
	want := lone(t, testmodel.V32(t), Config{Policy: deterministic("")}, list)
	o := tier.Options{StoreURL: store.URL()}
	e := startTiered(t, testmodel.V32(t), tiered("", 9, 64, o), checked(t))
	o.Wait = 50 * time.Millisecond
	hurried := startTiered(t, testmodel.V32(t), tiered("", 9, 64, o), checked(t))
	// Package tier tests every mode. After the first failure the engine does not use the store for one second.
	modes := []respserver.Mode{respserver.Works, respserver.Garbage, respserver.Short, respserver.Exchanged,
		respserver.Full, respserver.Hangs, respserver.Down}
	if raceEnabled {
		modes = []respserver.Mode{respserver.Works, respserver.Garbage, respserver.Hangs}
	}
	for _, mode := range modes {
		e := e
		if mode == respserver.Hangs { // only in this failure mode does a request wait for its whole time limit
			e = hurried
		}
		store.Set(respserver.Works)
		for _, r := range list[:3] { // writes pages to the store
			generate(t, e, r)
		}
		store.Set(mode)
		var wait sync.WaitGroup
		for i, r := range list {
			j := open(t, e, r)
			wait.Go(func() {
				got, err := j.whole()
				if err != nil {
					t.Error(err)
					return
				}
				sameTokens(t, fmt.Sprintf("%s: request %d", mode, i), got.Choices[0], want[i].Choices[0])
			})
		}
		wait.Wait()
	}
	if st := e.Stats().Tiers; st.Tokens == 0 || st.Tiers[0].Damaged == 0 {
		t.Errorf("no page was restored, or no damaged page was found: %+v", st)
	}
	if st := hurried.Stats().Tiers; st.Tiers[0].Failed == 0 {
		t.Errorf("no request to the store failed: %+v", st)
	}
}
