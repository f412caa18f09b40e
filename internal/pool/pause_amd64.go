//go:build !purego

package pool

// pause is the processor's hint for a polling loop: it lets the other hardware thread of the core run faster.
func pause()
