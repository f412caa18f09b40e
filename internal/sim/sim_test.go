package sim

import (
	"errors"
	"reflect"
	"testing"

	"sparrow/engine"
)

// TestSeeds simulates the scenarios of some seeds; make torture simulates as many as requested.
func TestSeeds(t *testing.T) {
	var all Report
	seeds := uint64(32)
	if testing.Short() {
		seeds = 20
	}
	for seed := uint64(1); seed <= seeds; seed++ {
		r, err := Run(seed, DefaultRequests)
		if err != nil {
			t.Fatalf("seed %d: %v\nrepeat it with:\n\t%s", seed, err, repeat(seed))
		}
		all.Add(r)
	}
	t.Logf("%+v", all)
	if seeds > 30 && (all.Faults == 0 || all.Failed == 0 || all.Cancelled == 0 || all.Bad == 0 || all.Refused == 0 ||
		all.Preempted == 0 || all.Accepted == 0 || all.Cached == 0 || all.Overlaps == 0 || all.Unused == 0 ||
		all.Ahead == 0) {
		t.Errorf("a kind of event did not happen in %d seeds: %+v", seeds, all)
	}
}

// After a failed pass, passes enqueued behind it have not run on the device. The rows in which passes find each other's
// tokens on the device must therefore be written again. Without that, these seeds, one of them with a panic, give a
// request tokens of another one.
func TestFedTokensAfterAFailedPass(t *testing.T) {
	for _, seed := range []uint64{1794837850817167411, 1794838740372801531} {
		if _, err := Run(seed, DefaultRequests); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// A seed gives the same result every time.
func TestSeedsRepeat(t *testing.T) {
	for seed := uint64(1); seed < 6; seed++ {
		first, err := Run(seed, DefaultRequests)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Run(seed, DefaultRequests)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("seed %d: %+v, then %+v, %v", seed, first, again, err)
		}
	}
}

// An error of engine.Check, after an iteration or after closing, ends the simulation with that error.
func TestBrokenEnginesAreReported(t *testing.T) {
	found := errors.New("a page is lost")
	for _, n := range []int{1, 7} {
		w, calls := newWorld(3, 10), 0
		w.check = func(*engine.Engine) error {
			if calls++; calls == n {
				return found
			}
			return nil
		}
		if _, err := w.run(); !errors.Is(err, found) {
			t.Errorf("found by call %d of %d: %v", n, calls, err)
		}
	}
	w := newWorld(3, 10)
	w.check = func(e *engine.Engine) error {
		if e.Stats().Requests > 0 && w.open == 0 {
			return found
		}
		return nil
	}
	if _, err := w.run(); !errors.Is(err, found) {
		t.Errorf("found at the end: %v", err)
	}
}
