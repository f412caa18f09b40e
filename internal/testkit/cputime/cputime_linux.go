// Package cputime measures processor time for tests: unlike elapsed time, it does not depend on other programs.
package cputime

import (
	"time"

	"golang.org/x/sys/unix"
)

// Thread returns the processor time of the calling thread. A test that compares two calls must lock its goroutine to
// the thread.
func Thread() time.Duration { return read(unix.CLOCK_THREAD_CPUTIME_ID) }

// Process returns the processor time of all threads of the process.
func Process() time.Duration { return read(unix.CLOCK_PROCESS_CPUTIME_ID) }

func read(clock int32) time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(clock, &t); err != nil {
		panic(err) // every Linux has these clocks
	}
	return time.Duration(t.Nano())
}
