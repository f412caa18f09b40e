//go:build !(linux || darwin)

package mmap

// Memory takes zeroed memory, on this system from the Go heap.
func Memory(bytes int) ([]byte, error) { return make([]byte, bytes), nil }

// FreeMemory gives back what Memory took.
func FreeMemory([]byte) error { return nil }
