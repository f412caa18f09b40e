//go:build !linux

package host

func requestHuge([]byte) []byte { return nil }

func interleave([]byte) {}

// Placement describes in one line how large buffers are placed.
func Placement() string { return "left to the system" }
