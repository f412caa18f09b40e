//go:build (linux || darwin) && !nommap

package mmap

import (
	"os"

	"golang.org/x/sys/unix"
)

// load maps the first size bytes of f, read-only and shared with the page cache.
func load(f *os.File, size int) ([]byte, error) {
	return unix.Mmap(int(f.Fd()), 0, size, unix.PROT_READ, unix.MAP_SHARED)
}

func unload(data []byte) error { return unix.Munmap(data) }
