// Package sysmem reads how much memory the machine has and can still give.
package sysmem

import (
	"bytes"
	"os"
	"strconv"
)

// Available is the bytes of memory that can be used without swapping, or 0 where the system does not say.
func Available() int64 { return read("MemAvailable:") }

// Total is the bytes of memory the machine has, or 0 where the system does not say.
func Total() int64 { return read("MemTotal:") }

func read(field string) int64 {
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	return parse(text, field)
}

func parse(text []byte, field string) int64 {
	_, rest, ok := bytes.Cut(text, []byte(field))
	if !ok {
		return 0
	}
	f := bytes.Fields(rest)
	if len(f) < 2 {
		return 0
	}
	kib, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil || kib < 0 || kib > 1<<50 {
		return 0
	}
	return kib << 10
}
