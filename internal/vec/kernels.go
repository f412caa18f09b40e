//go:build !purego && (amd64 || arm64)

package vec

import "unsafe"

// runKernel calls a kernel. Assembly cannot be preempted. runKernel is not inlined, so that its stack check allows
// preemption before each call.
//
//go:noinline
func runKernel[A any](kernel func(*A), a *A) { kernel(a) }

// at returns the address of element i of s, which must exist.
func at[T any](s []T, i int) unsafe.Pointer { return unsafe.Pointer(&s[i]) }
