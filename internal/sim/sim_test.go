package sim

import (
	"errors"
	"reflect"
	"testing"

	"sparrow/engine"
	"sparrow/internal/testkit/testflag"
)

// TestSeeds simulates the scenarios of some seeds; make long simulates twice as many, and make torture as many as
// requested.
func TestSeeds(t *testing.T) {
	var all Report
	first, last := uint64(17), uint64(32) // all kinds of events happen
	if *testflag.Long {
		first = 1
	}
	for seed := first; seed <= last; seed++ {
		r, err := Run(seed, DefaultRequests)
		if err != nil {
			t.Fatalf("seed %d: %v\nrepeat it with:\n\t%s", seed, err, repeat(seed))
		}
		all.Add(r)
	}
	t.Logf("%+v", all)
	if all.Faults == 0 || all.Failed == 0 || all.Cancelled == 0 || all.Bad == 0 || all.Refused == 0 ||
		all.Preempted == 0 || all.Accepted == 0 || all.Cached == 0 || all.Overlaps == 0 || all.Unused == 0 ||
		all.Ahead == 0 {
		t.Errorf("a kind of event did not happen with seeds %d to %d: %+v", first, last, all)
	}
}

// After a failed pass, passes enqueued after it have not run on the device. The destinations of tokens that one pass
// passes to the next on the device must therefore be written again. Without that, a request gets tokens of another
// request with these seeds, in one of them after a panic.
func TestFedTokensAfterAFailedPass(t *testing.T) {
	for _, seed := range []uint64{1794837850817167411, 1794838740372801531} {
		if _, err := Run(seed, DefaultRequests); err != nil {
			t.Errorf("seed %d: %v", seed, err)
		}
	}
}

// All runs of a seed give equal results.
func TestSeedsRepeat(t *testing.T) {
	for seed := uint64(1); seed < 6; seed++ {
		first, err := Run(seed, DefaultRequests)
		if err != nil {
			t.Fatal(err)
		}
		again, err := Run(seed, DefaultRequests)
		if err != nil || !reflect.DeepEqual(first, again) {
			t.Errorf("seed %d: report %+v, then %+v, error %v", seed, first, again, err)
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
			t.Errorf("the error of call %d of %d gave %v", n, calls, err)
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
		t.Errorf("the error at the end gave %v", err)
	}
}
