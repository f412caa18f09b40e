// Package op is the CUDA implementation of the operations of package kernel: tensors in device memory flow in and
// out, activations are bf16.
//
// An operation checks its arguments on the host, enqueues launches on one stream and returns; Read and Sync wait.
// What only the device can see, such as a slot beyond a pool, raises a fault bit instead of touching memory, and the
// next Read or Sync returns it as an error that wraps kernel.ErrArgument.
//
// Weights are uploaded when they are prepared (weight.go) and stay until the device is closed. Rows that multiply FP8
// blocks are quantised to e4m3 for each 128 columns; sums are float32. Memory that an operation needs for itself comes
// from a pool, which keeps what it has taken: equal calls allocate nothing after the first.
package op
