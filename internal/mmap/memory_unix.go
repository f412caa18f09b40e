//go:build linux || darwin

package mmap

import "golang.org/x/sys/unix"

// Memory takes zeroed memory outside the Go heap: the collector neither scans nor counts it, and the system gives it
// out as it is written.
func Memory(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// FreeMemory gives back what Memory took.
func FreeMemory(b []byte) error { return unix.Munmap(b) }
