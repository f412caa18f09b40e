// Package kernel defines the operations of a forward pass.
//
// Each operation is an argument struct, a value that checks itself, and one small interface of the devices that have
// it. A pass is a list of operations, which a Builder collects once and a Program runs. The model and attention
// packages are written once against these and never read a Tensor's elements, so the same code runs with tensors in
// host or in GPU memory. kernel/ref defines what is correct, kernel/cpu is fast on a CPU,
// kernel/cuda on a Hopper GPU.
//
// A device prepares each weight once, with its role, and operations take the handles that it returns (Preparer): shapes
// and scales are checked there.
//
// An operation never makes a choice of policy: which operation runs over which layout is decided in package plan.
//
// Every implementation must keep this rule: a row of the result is bitwise equal whatever other rows are computed in
// its call.
package kernel
