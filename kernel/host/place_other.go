//go:build !linux

package host

func advise([]byte) {}

// Placement says in one line what is asked of the system for large buffers.
func Placement() string { return "left to the system" }
