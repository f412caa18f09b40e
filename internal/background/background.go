// Package background runs work of a request that may take long, such as compiling a schema, on a thread that does not
// slow down those that serve other requests. A function flows in, and runs on its own thread that the system schedules
// after the others.
package background

import "runtime"

// Run runs f on its own thread with a low priority, where the system has such, and waits for it. A panic of f is one of
// the caller.
func Run(f func()) {
	var failed any
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer func() { failed = recover() }()
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine, since it has a low priority
		lower()
		f()
	}()
	<-done
	if failed != nil {
		panic(failed)
	}
}
