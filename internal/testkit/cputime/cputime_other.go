//go:build !linux

package cputime

import "time"

var epoch = time.Now()

// Thread returns the time of day, because this system does not report the processor time of a thread.
func Thread() time.Duration { return time.Since(epoch) }

// Process returns the time of day, because this system does not report the processor time of a process.
func Process() time.Duration { return time.Since(epoch) }
