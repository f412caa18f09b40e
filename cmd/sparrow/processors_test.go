package main

import (
	"fmt"
	"runtime"
	"strconv"
	"strings"
	"testing"
)

// With few workers the server lets one more goroutine run in parallel, for connections. An engine that is opened again
// has the same number of workers.
func TestConnectionsHaveAProcessor(t *testing.T) {
	t.Setenv("GOMAXPROCS", "")
	before := runtime.GOMAXPROCS(2)
	defer runtime.GOMAXPROCS(before)
	const n = 2
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
	for name, c := range map[string]struct {
		environment string
		processors  int
	}{"a number in the environment": {"2", n}, "many processors": {"", fewWorkers + 1}} {
		t.Setenv("GOMAXPROCS", c.environment)
		runtime.GOMAXPROCS(c.processors)
		f := engineFlags{}
		if undo := f.spareProcessor(); f.workers != 0 || runtime.GOMAXPROCS(0) != c.processors {
			undo()
			t.Errorf("%s: it does not stay", name)
		}
	}
}

// More workers than available processors cause a warning, whatever limits the processors.
func TestMoreWorkersThanProcessorsAreWarnedOf(t *testing.T) {
	before := runtime.GOMAXPROCS(1)
	defer runtime.GOMAXPROCS(before)
	const want = "--workers 2: this process may use 1 core, "
	_, side := mustDrive(t, "", "run", "--kernels", "cpu", "--workers", "2", "--max-tokens", "2", "Goodbye")
	if !strings.Contains(side, want) {
		t.Errorf("%q lacks %q", side, want)
	}
	_, side = mustDrive(t, "", "bench", "kernels", "--only", "take", "--threads", "2", "--replays", "1")
	if want := "--threads 2: this process may use 1 core, "; !strings.Contains(side, want) {
		t.Errorf("%q lacks %q", side, want)
	}
	// A number of workers from an environment variable causes the same warning as one from a flag.
	many := runtime.NumCPU() + 1
	t.Setenv("GOMAXPROCS", strconv.Itoa(many))
	runtime.GOMAXPROCS(many)
	for _, flags := range [][]string{nil, {"--workers", strconv.Itoa(many)}} {
		name := "GOMAXPROCS"
		if flags != nil {
			name = "--workers"
		}
		for _, command := range [][]string{{"run", "--max-tokens", "2", "Goodbye"},
			{"bench", "model", "--contexts", "0", "--batch", "1", "--prompts", "0", "--budget", "1ms"}} {
			_, side := mustDrive(t, "", append(append(command, "--kernels", "cpu"), flags...)...)
			if want := fmt.Sprintf("warning: %s %d: this process may use ", name, many); !strings.Contains(side, want) {
				t.Errorf("%v: %q lacks %q", command, side, want)
			}
		}
	}
	if got := runtime.GOMAXPROCS(1); got != many {
		t.Errorf("%d processors afterwards, want %d", got, many)
	}
	t.Setenv("GOMAXPROCS", "")
	f := engineFlags{}
	f.workers = 2
	defer f.spareProcessor()()
	if f.processors != 1 {
		t.Errorf("%d processors before one was added, want 1", f.processors)
	}
}
