//go:build !linux && !darwin

package group

// pageReads is not available on this system.
func pageReads() int64 { return 0 }
