package main

import (
	"fmt"
	"math"
	"os"
	"runtime"
	"runtime/debug"

	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/server"
)

// Memory for requests when --request-memory says nothing: a quarter of what is available once the model is open,
// within these bounds.
const leastRequestMemory = 64 << 20

// requestMemory is the budget for requests: as asked for, or by what the machine or its control group has left.
func requestMemory(asked string) (int64, error) {
	if asked != "" {
		n, err := parseBytes(asked)
		if err == nil && n < leastRequestMemory {
			err = fmt.Errorf("want %s or more", unit.Bytes(leastRequestMemory))
		}
		if err != nil {
			return 0, fmt.Errorf("--request-memory %q: %w", asked, err)
		}
		return n, nil
	}
	left := sysmem.Available()
	if left <= 0 { // not known here
		return server.DefaultRequestMemory, nil
	}
	return min(max(left/4, leastRequestMemory), server.DefaultRequestMemory), nil
}

// boundHeap asks the garbage collector to stay within what is in use now and the budget for requests, so that a burst
// of them does not double the heap. A limit in the environment stays.
func boundHeap(requests int64) {
	if os.Getenv("GOMEMLIMIT") != "" {
		return
	}
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	debug.SetMemoryLimit(min(int64(m.Sys-m.HeapReleased)+requests+requests/4, math.MaxInt64))
}
