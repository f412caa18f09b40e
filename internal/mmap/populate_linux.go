//go:build linux && !nommap

package mmap

import (
	"os"
	"syscall"
	"unsafe"
)

// populateRead is MADV_POPULATE_READ of Linux 5.14.
const populateRead = 22

// Populate makes the pages of a mapped range readable with one call instead of a fault for each. It is a hint: where
// the system refuses it, pages are loaded when they are accessed.
func Populate(b []byte) {
	if len(b) == 0 {
		return
	}
	page := uintptr(os.Getpagesize())
	from := uintptr(unsafe.Pointer(&b[0])) &^ (page - 1)
	to := uintptr(unsafe.Pointer(&b[0])) + uintptr(len(b))
	_, _, _ = syscall.Syscall(syscall.SYS_MADVISE, from, to-from, populateRead)
}
