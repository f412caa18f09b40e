// Package await waits for events in tests. Its time limit is only for hangs: it is so long that no test fails on a busy
// machine.
package await

import (
	"runtime"
	"testing"
	"time"
)

// Hang is the time after which an event that has not happened is assumed to never happen.
const Hang = 5 * time.Minute

// True waits until ok reports true.
func True(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(Hang); !ok(); time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("this did not happen within %v: %s", Hang, what)
		}
	}
}

// Value waits for a value, or for the channel to be closed.
func Value[T any](t testing.TB, what string, c <-chan T) T {
	t.Helper()
	select {
	case v := <-c:
		return v
	case <-time.After(Hang):
		t.Fatalf("this did not happen within %v: %s", Hang, what)
		panic("unreachable")
	}
}

// Goroutines waits until at most as many goroutines run as before.
func Goroutines(t testing.TB, before int) {
	t.Helper()
	for deadline := time.Now().Add(Hang); runtime.NumGoroutine() > before; time.Sleep(time.Millisecond) {
		if time.Now().After(deadline) {
			stacks := make([]byte, 1<<16)
			t.Fatalf("%d goroutines run, want at most the %d from before:\n%s", runtime.NumGoroutine(), before,
				stacks[:runtime.Stack(stacks, true)])
		}
	}
}

// Untimed returns a test without the time limit of its package: the package rapid then runs all examples, also on a
// busy machine.
func Untimed(t testing.TB) testing.TB { return untimed{t} }

type untimed struct{ testing.TB }
