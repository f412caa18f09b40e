//go:build race

package vec

import "sync"

// recycler keeps scratch memory between calls. The zero value is ready to use. Under the race detector sync.Pool drops
// items at random, and allocating half a megabyte of scratch memory for every fourth row would take most of a test's
// time. A list with a lock drops none.
type recycler[T any] struct {
	mu   sync.Mutex
	free []*T
}

func (r *recycler[T]) get() *T {
	r.mu.Lock()
	defer r.mu.Unlock()
	if n := len(r.free); n > 0 {
		v := r.free[n-1]
		r.free = r.free[:n-1]
		return v
	}
	return new(T)
}

func (r *recycler[T]) put(v *T) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free = append(r.free, v)
}
