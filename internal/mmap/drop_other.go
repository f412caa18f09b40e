//go:build !linux || nommap

package mmap

// Drop does nothing: this system reuses the memory of mapped files without a call.
func Drop([]byte) {}
