package vec

import "unsafe"

// alignedBytes returns n bytes that begin at a cache line.
func alignedBytes(n int) []byte {
	const line = 64
	raw := make([]byte, n+line)
	first := int(-uintptr(unsafe.Pointer(&raw[0])) & (line - 1))
	return raw[first : first+n : first+n]
}
