//go:build !linux || nommap

package mmap

// Ahead does nothing on this system: pages are read when they are used.
func Ahead([]byte) {}
