//go:build !purego

package pool

// pause is the processor's hint for a polling loop: the other thread of the core runs faster in the meantime.
func pause()
