// Package heap measures memory in tests: a function that builds something flows in, the bytes that the result keeps on
// the heap flow out.
package heap

import "runtime"

// Kept is by how much the result of build makes the heap grow. Nothing else may allocate at the same time.
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
