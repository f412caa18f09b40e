//go:build !linux

package host

func requestHuge([]byte) []byte { return nil }

func interleave([]byte) {}

// Placement returns a line about the pages and memory nodes of large buffers.
func Placement() string { return "left to the system" }
