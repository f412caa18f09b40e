// Package kernel defines the operations of a forward pass.
//
// Each operation is one argument struct and one small interface; a Device is memory plus all of them. The model and
// attention packages are written once against these interfaces and never read a Tensor's elements, so the same code
// runs with tensors in host or in GPU memory. kernel/ref defines what is correct, kernel/cpu is fast on a CPU,
// kernel/cuda on a Hopper GPU.
//
// A device prepares each weight once, with its role, and operations take the handles that it returns (Preparer): shapes
// and scales are checked there.
//
// An operation never makes a choice of policy: which operation runs over which layout is decided in package plan. It
// checks its arguments (every Args type has a Check method that all implementations call first) and computes.
//
// Every implementation must keep this rule: a row of the result has the same bits whatever other rows are computed in
// the same call.
package kernel
