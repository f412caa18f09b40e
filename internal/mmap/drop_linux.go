//go:build linux && !nommap

package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Drop lets the system reuse the memory of the whole pages in b, which must be part of a file's Bytes. The pages are
// read again when they are accessed, with unchanged contents.
func Drop(b []byte) {
	page := os.Getpagesize()
	skip := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & uintptr(page-1))
	if skip >= len(b) {
		return
	}
	if n := (len(b) - skip) / page * page; n > 0 {
		// An error is ignored: the pages then remain in memory.
		_ = unix.Madvise(b[skip:][:n], unix.MADV_DONTNEED)
	}
}
