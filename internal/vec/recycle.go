//go:build !race

package vec

import "sync"

// recycler keeps scratch memory between calls. The zero value is ready to use.
type recycler[T any] struct{ pool sync.Pool }

func (r *recycler[T]) get() *T {
	if v := r.pool.Get(); v != nil {
		return v.(*T)
	}
	return new(T)
}

func (r *recycler[T]) put(v *T) { r.pool.Put(v) }
