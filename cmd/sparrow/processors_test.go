package main

import (
	"runtime"
	"testing"
)

// A server runs one goroutine more than it has workers, however many those are, and what is opened again has as many
// workers as before.
func TestConnectionsHaveAProcessor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	n := runtime.GOMAXPROCS(0)
	for asked, want := range map[int]int{0: n, n: n, n + 2: n + 2} {
		f := engineFlags{}
		f.workers = asked
		undo := f.spareProcessor()
		if got := runtime.GOMAXPROCS(0); got != want+1 || f.workers != want {
			t.Errorf("%d workers asked for: %d workers and %d processors, want %d and %d", asked, f.workers, got, want,
				want+1)
		}
		undo()
		if got := runtime.GOMAXPROCS(0); got != n {
			t.Errorf("%d processors afterwards, want %d", got, n)
		}
	}
	t.Setenv("GOMAXPROCS", "2")
	f := engineFlags{}
	if f.spareProcessor()(); f.workers != 0 || runtime.GOMAXPROCS(0) != n {
		t.Error("a number in the environment does not stay")
	}
}
