// Package sysmem reads how much memory a process may use in total, and how much is still available: the memory of the
// machine, and the limits of the control groups (cgroups, version 1 and 2) that the process is in.
package sysmem

import (
	"bytes"
	"io/fs"
	"os"
	"strconv"
)

// Available returns the bytes of memory that can be used without swapping or being killed, or 0 if the system does
// not report it.
func Available() int64 { return Here().Available() }

// Total returns the maximum bytes of memory of the process, or 0 if the system does not report it.
func Total() int64 { return Here().Total() }

// System holds the files in which a system reports its memory.
type System struct{ root fs.FS }

// Here returns the system that the process runs on.
func Here() System { return At(os.DirFS("/")) }

// At returns a system whose root folder is given.
func At(root fs.FS) System { return System{root} }

// Total returns the memory of the machine, or the lowest limit of a control group.
func (s System) Total() int64 {
	total := s.meminfo("MemTotal:")
	for _, g := range s.groups() {
		total = lower(total, g.limit)
	}
	return total
}

// Available returns the free memory of the machine, or of the control group with the least free memory. Cached pages of
// files are counted as free, because the system reuses them when memory is needed.
func (s System) Available() int64 {
	free := s.meminfo("MemAvailable:")
	for _, g := range s.groups() {
		// A full group has no free memory; the result is 1, because 0 means unknown.
		free = lower(free, max(g.limit-g.used, 1))
	}
	return free
}

// lower returns the lower of two amounts; an amount of 0 is unknown.
func lower(a, b int64) int64 {
	if a == 0 || b == 0 {
		return max(a, b)
	}
	return min(a, b)
}

func (s System) meminfo(field string) int64 {
	text, err := fs.ReadFile(s.root, "proc/meminfo")
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
