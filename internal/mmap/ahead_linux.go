//go:build linux && !nommap

package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pageBytes = uintptr(os.Getpagesize())

// Ahead requests that the system reads the pages of b, which is mapped, into memory, and does not wait for them.
func Ahead(b []byte) {
	if len(b) == 0 {
		return
	}
	// madvise needs the address of the start of a page, which may be before b; no byte there is accessed.
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := start % pageBytes
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, start-skip, uintptr(len(b))+skip, unix.MADV_WILLNEED)
}
