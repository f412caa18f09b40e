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

// advise widens [off, off+n) down to the start of its page: the system accepts only page-aligned addresses, and data
// itself begins on a page.
func advise(data []byte, off, n int, a Advice) error {
	start := off - off%os.Getpagesize()
	return unix.Madvise(data[start:off+n], [...]int{
		Normal:     unix.MADV_NORMAL,
		Sequential: unix.MADV_SEQUENTIAL,
		Random:     unix.MADV_RANDOM,
		WillNeed:   unix.MADV_WILLNEED,
	}[a])
}
