//go:build !purego

package pool

// pause is the processor's hint for a polling loop: the other hardware thread of the core runs faster meanwhile.
func pause()
