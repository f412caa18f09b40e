//go:build !linux || nommap

package mmap

// Populate does nothing: pages are loaded when they are accessed.
func Populate([]byte) {}
