//go:build !amd64 || purego

package vec

// Prefetch does nothing on this machine.
func Prefetch([]byte) {}
