//go:build linux || darwin

package mmap

import "golang.org/x/sys/unix"

// Memory allocates zeroed memory outside the Go heap, which the garbage collector neither scans nor counts. The system
// provides its pages when they are first written.
func Memory(bytes int) ([]byte, error) {
	return unix.Mmap(-1, 0, bytes, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_ANON|unix.MAP_PRIVATE)
}

// FreeMemory frees memory that Memory allocated.
func FreeMemory(b []byte) error { return unix.Munmap(b) }
