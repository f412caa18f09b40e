// Package background runs a function on its own thread with a lower priority, so that long work of a request, such as
// compiling a schema, does not slow down other requests.
package background

import "runtime"

// Run runs f on its own thread with a low priority, if the system has priorities, and waits for it. A panic of f
// becomes a panic of the caller.
func Run(f func()) {
	var failed any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { failed = recover() }()
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine, because its priority remains low
		lower()
		f()
	}()
	<-done
	if failed != nil {
		panic(failed)
	}
}
