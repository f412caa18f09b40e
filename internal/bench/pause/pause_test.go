package pause

import (
	"errors"
	"math"
	"runtime"
	"strings"
	"testing"
	"time"
)

func TestWorstIsTheLastIntervalThatGrew(t *testing.T) {
	buckets := []float64{0, 1, 2, 4, math.Inf(1)}
	for _, c := range []struct {
		before, after []uint64
		want          float64
	}{
		{[]uint64{1, 1, 1, 0}, []uint64{1, 1, 1, 0}, 0},
		{[]uint64{1, 1, 1, 0}, []uint64{2, 1, 1, 0}, 1},
		{[]uint64{1, 1, 1, 0}, []uint64{2, 1, 3, 0}, 4},
		{[]uint64{0, 0, 0, 0}, []uint64{0, 0, 0, 1}, 4},
	} {
		if got := worst(histogram{c.before, buckets}, histogram{c.after, buckets}); got != c.want {
			t.Errorf("histogram %v to %v: worst is %v, want %v", c.before, c.after, got, c.want)
		}
	}
}

func TestMeasureRunsWorkAndCollects(t *testing.T) {
	turns := 0
	p, err := Measure(30*time.Millisecond, func(stop <-chan struct{}) error {
		for {
			select {
			case <-stop:
				return nil
			default:
				turns++
			}
		}
	})
	if err != nil || p.Collections == 0 || turns == 0 || p.Worst <= 0 {
		t.Errorf("pause %+v after %d turns, error %v", p, turns, err)
	}
}

func TestMeasureTellsWhyWorkEnded(t *testing.T) {
	broken := errors.New("broken")
	if _, err := Measure(time.Second, func(<-chan struct{}) error { return broken }); !errors.Is(err, broken) {
		t.Errorf("got %v", err)
	}
	if _, err := Measure(time.Second, func(<-chan struct{}) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), "before") {
		t.Errorf("got %v", err)
	}
}

// An error of work that ends when it is told to is returned. A snapshot does not change with the runtime's counters.
func TestMeasureReturnsTheErrorOfWork(t *testing.T) {
	broken := errors.New("broken")
	p, err := Measure(time.Millisecond, func(stop <-chan struct{}) error { <-stop; return broken })
	if p != nil || !errors.Is(err, broken) {
		t.Errorf("pause %+v, error %v", p, err)
	}
	total := func(h histogram) (n uint64) {
		for _, c := range h.counts {
			n += c
		}
		return n
	}
	before := counts()
	n := total(before)
	runtime.GC()
	if after := counts(); len(after.buckets) != len(after.counts)+1 || total(after) <= n || total(before) != n {
		t.Errorf("%d pauses, %d after a collection; the first snapshot has %d", n, total(after), total(before))
	}
}
