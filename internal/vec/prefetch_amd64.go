//go:build !purego

package vec

import "unsafe"

// Prefetch starts to bring memory into the L2 cache of this core. It does not wait and does not fault.
func Prefetch(b []byte) {
	if len(b) > 0 {
		prefetch(unsafe.Pointer(&b[0]), (len(b)+63)/64) // the last line may extend beyond b: prefetching ignores that
	}
}

//go:noescape
func prefetch(p unsafe.Pointer, lines int)
