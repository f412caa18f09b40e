package pool

import (
	"errors"
	"fmt"
)

var (
	// ErrBusy is returned by Run and Close while a Run is in progress, which happens if a task calls them on its own
	// pool or a second goroutine uses the pool.
	ErrBusy = errors.New("pool: a run is already in progress; a pool has one owner and runs do not nest")

	// ErrClosed is returned by Run after Close.
	ErrClosed = errors.New("pool: closed")
)

// PanicError is the error of Run if a task panicked. Other items of that run may or may not have run.
type PanicError struct {
	Item   int    // the item whose Do panicked
	Worker int    // the worker that ran it
	Value  any    // panic value; nil if the task called runtime.Goexit
	Stack  []byte // stack of the goroutine at the panic
}

func (e *PanicError) Error() string {
	if e.Value == nil {
		return fmt.Sprintf("pool: item %d on worker %d ended its goroutine", e.Item, e.Worker)
	}
	return fmt.Sprintf("pool: item %d on worker %d panicked: %v", e.Item, e.Worker, e.Value)
}

// Fault returns the address whose read or write failed, or false if the panic had another cause.
func (e *PanicError) Fault() (address uintptr, ok bool) {
	f, ok := e.Value.(interface{ Addr() uintptr })
	if !ok {
		return 0, false
	}
	return f.Addr(), true
}

// Unwrap returns the panic value if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
