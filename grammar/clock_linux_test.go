package grammar

import (
	"time"

	"golang.org/x/sys/unix"
)

// processorTime is what the processor has spent on this thread.
func processorTime() time.Duration {
	var t unix.Timespec
	if err := unix.ClockGettime(unix.CLOCK_THREAD_CPUTIME_ID, &t); err != nil {
		panic(err) // every Linux has this clock
	}
	return time.Duration(t.Nano())
}
