//go:build !linux

package host

func advise([]byte) {}

// Placement describes in one line how large buffers are placed.
func Placement() string { return "left to the system" }
