// Package op is the CUDA implementation of the operations of package kernel: tensors in device memory flow in and
// out, activations are bf16.
//
// An operation checks its arguments on the host, enqueues launches on one stream and returns; Read and Sync wait.
// What only the device can see, such as a slot beyond a pool, raises a fault bit instead of touching memory, and the
// next Read or Sync returns it as an error that wraps kernel.ErrArgument.
//
// Operations without a kernel return an error that wraps kernel.ErrUnsupported and names them; Missing lists them
// all. Until that list is empty no model can run here, so the registered backend says so and is not available.
package op
