//go:build linux || darwin || freebsd || dragonfly

package main

import (
	"math"

	"golang.org/x/sys/unix"
)

// freeBytes returns the number of bytes that an unprivileged program may still write to the file system of path.
func freeBytes(path string) (free int64, known bool) {
	var s unix.Statfs_t
	if err := unix.Statfs(path, &s); err != nil {
		return 0, false
	}
	// The fields' types differ between systems; FreeBSD reports a negative number if only space for the superuser is
	// left.
	blocks, size := int64(s.Bavail), int64(s.Bsize)
	if blocks <= 0 || size <= 0 {
		return 0, true
	}
	if blocks > math.MaxInt64/size {
		return math.MaxInt64, true
	}
	return blocks * size, true
}
