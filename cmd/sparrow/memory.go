package main

import (
	"fmt"
	"os"
	"runtime"
	"runtime/debug"

	"sparrow"
	"sparrow/internal/sysmem"
	"sparrow/internal/unit"
	"sparrow/server"
)

// Without --request-memory, the memory budget for requests is a quarter of the memory that is available after the model
// was opened, within these limits in bytes.
const leastRequestMemory = 64 << 20

// requestMemory returns the memory budget for requests: the value of the flag, or a share of the available memory of
// the machine or its cgroup.
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
	if left <= 0 { // the available memory is unknown on this system
		return server.DefaultRequestMemory, nil
	}
	return min(max(left/4, leastRequestMemory), server.DefaultRequestMemory), nil
}

// memorySum is the maximum memory of a server, in addition to mapped files.
type memorySum struct {
	model    int64 // cache, states, arena and packed weights, if they are in host memory
	program  int64 // bytes used before the first request, except those of other fields
	requests int64
	store    int64 // bytes for stored responses
	garbage  int64 // bytes that were freed but not yet collected
	tiers    int64 // bytes of the prefix cache's tiers, outside the heap
}

// sumMemory adds the memory of an open model and of requests.
func sumMemory(i sparrow.Info, requests, store int64) memorySum {
	debug.FreeOSMemory() // returns the memory that loading has freed
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	s := memorySum{requests: requests, store: max(store, 0), garbage: requests / 4, tiers: i.Memory.Tiers}
	if i.Memory.Device == 0 {
		s.model = i.Memory.Cache + i.Memory.Arena
		if i.Memory.Packed {
			s.model += i.Memory.Weights
		}
	}
	s.program = max(int64(m.Sys-m.HeapReleased)-s.model, 0)
	if i.Memory.Device == 0 {
		s.model += i.Memory.States // allocated when sequences run
	}
	return s
}

func (s *memorySum) total() int64 {
	return s.model + s.program + s.requests + s.store + s.garbage + s.tiers
}

// bound sets the garbage collector's memory limit to the sum, because the heap may otherwise double during a burst of
// requests. GOMEMLIMIT in the environment takes precedence.
func (s *memorySum) bound() {
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(s.total() - s.tiers)
	}
}

// String lists the parts of the sum, with a warning if the sum exceeds the memory that the process may use.
func (s *memorySum) String() string {
	tiers := ""
	if s.tiers > 0 {
		tiers = ", tiers of the cache " + unit.Bytes(s.tiers)
	}
	text := fmt.Sprintf("at most %s: model %s%s, requests %s, stored responses %s, garbage %s, the program %s; in "+
		"addition mapped files", unit.Bytes(s.total()), unit.Bytes(s.model), tiers, unit.Bytes(s.requests),
		unit.Bytes(s.store), unit.Bytes(s.garbage), unit.Bytes(s.program))
	if most := sysmem.Total(); most > 0 && s.total() > most {
		text += fmt.Sprintf("; warning: the process may use only %s, choose less (--cache-tokens, --step-tokens, "+
			"--request-memory, --store-bytes, --host-cache)", unit.Bytes(most))
	}
	return text
}
