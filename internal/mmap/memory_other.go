//go:build !(linux || darwin)

package mmap

// Memory allocates zeroed memory; on this system it comes from the Go heap.
func Memory(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

// FreeMemory frees memory that Memory allocated.
func FreeMemory([]byte) error { return nil }
