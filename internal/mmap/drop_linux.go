//go:build linux && !nommap

package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Drop lets the system reuse the memory of whole pages of a mapped file. They are read again when they are accessed;
// the bytes stay the same. b must be part of a file's Bytes.
func Drop(b []byte) {
	page := os.Getpagesize()
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(page-1))
	if skip >= len(b) {
		return
	}
	if n := (len(b) - skip) / page * page; n > 0 {
		// If this fails, the pages stay in memory, which only affects the memory in use.
		_ = unix.Madvise(b[skip:][:n], unix.MADV_DONTNEED)
	}
}
