// Package heap measures memory in tests: its input is a function that builds a value, its output the bytes of the value
// on the heap.
package heap

import "runtime"

// Kept returns by how many bytes the heap grows for the result of build. No other goroutine may allocate at the same
// time.
func Kept(build func() any) int {
	before := used()
	kept := build()
	grown := used() - before
	runtime.KeepAlive(kept)
	return grown
}

func used() int {
	runtime.GC()
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int(m.HeapAlloc)
}
