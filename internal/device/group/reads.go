//go:build linux || darwin

package group

import "syscall"

// pageReads returns how often the process waited for a page of a file.
func pageReads() int64 {
	var use syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &use) != nil {
		return 0
	}
	return int64(use.Majflt)
}
