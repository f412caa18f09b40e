//go:build linux && !nommap

package mmap

import (
	"os"
	"unsafe"

	"golang.org/x/sys/unix"
)

var pageBytes = uintptr(os.Getpagesize())

// Ahead asks the system to read the pages that hold b, which is mapped, and does not wait for them.
func Ahead(b []byte) {
	if len(b) == 0 {
		return
	}
	// madvise takes whole pages: the first one begins before b. Only its address is used.
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	skip := start % pageBytes
	_, _, _ = unix.Syscall(unix.SYS_MADVISE, start-skip, uintptr(len(b))+skip, unix.MADV_WILLNEED)
}
