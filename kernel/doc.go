// Package kernel defines the operations of a forward pass.
//
// Each operation has an argument struct with a method Check, and each device an OpTable of functions that run
// operations. A pass is a list of operations: a Builder collects and checks the list once, a Program runs it. The
// packages of models and attention use only these types and never read a Tensor's elements, so the same code runs with
// tensors in host or in GPU memory. kernel/ref defines what is correct, kernel/cpu is fast on a CPU, kernel/cuda on a
// Hopper GPU.
//
// A device prepares each weight once, for a role (Preparer). Shapes and scales are checked then, and operations use the
// returned handles.
//
// Package plan decides which operation runs over which layout; operations do not.
//
// Rule for every implementation: a row of a result is bitwise equal, regardless of the other rows in the call.
package kernel
