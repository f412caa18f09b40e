//go:build !purego && (amd64 || arm64)

package vec

import "unsafe"

// runKernel calls a kernel. Assembly has no safe points: it is not inlined, so its
// stack check allows preemption before each block.
//
//go:noinline
func runKernel[A any](kernel func(*A), a *A) { kernel(a) }

// at returns the address of element i of s, which exists.
func at[T any](s []T, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }
