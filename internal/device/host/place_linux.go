package host

import (
	"bytes"
	"fmt"
	"os"
	"strings"
	"sync"
	"unsafe"

	"golang.org/x/sys/unix"
)

// requestHuge requests huge pages for the aligned part of b, and returns that part. The request is only a hint, so
// errors are ignored.
func requestHuge(b []byte) []byte {
	first := int(-uintptr(unsafe.Pointer(&b[0])) & (hugePage - 1))
	last := (len(b) - first) &^ (hugePage - 1)
	if last <= 0 {
		return nil
	}
	whole := b[first:][:last]
	_ = unix.Madvise(whole, unix.MADV_HUGEPAGE)
	return whole
}

// interleave distributes the pages of whole over all memory nodes. This is only a hint, so errors are ignored.
func interleave(whole []byte) {
	n := nodes()
	if n < 2 || len(whole) == 0 {
		return
	}
	mask := uint64(1)<<n - 1
	// In bounds: the range is the slice, and the call reads one bit less than the given 65 from the mask of 64 bits.
	_, _, _ = unix.Syscall6(unix.SYS_MBIND, uintptr(unsafe.Pointer(&whole[0])), uintptr(len(whole)), policyInterleave,
		uintptr(unsafe.Pointer(&mask)), 65, 0)
}

// policyInterleave is the memory policy that allocates pages from the nodes round-robin.
const policyInterleave = 3

// Placement returns a line about the pages and memory nodes of large buffers.
func Placement() string {
	mode, err := os.ReadFile("/sys/kernel/mm/transparent_hugepage/enabled")
	pages := "huge pages requested"
	switch {
	case err != nil:
		pages = "no huge pages on this system"
	case bytes.Contains(mode, []byte("[never]")):
		pages = "huge pages disabled on this system"
	}
	if n := nodes(); n > 1 {
		return fmt.Sprintf("%s, spread over %d memory nodes", pages, n)
	}
	return pages + ", one memory node"
}

// nodes returns the number of memory nodes, if the number is known and nodes are numbered from 0 without gaps.
var nodes = sync.OnceValue(func() int {
	text, err := os.ReadFile("/sys/devices/system/node/online")
	if err != nil {
		return 1
	}
	return parseNodes(strings.TrimSpace(string(text)))
})
