//go:build !purego

package pool

// pause tells the processor that this is a loop that polls: the other thread of the core runs faster meanwhile.
func pause()
