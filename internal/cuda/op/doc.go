// Package op is the CUDA implementation of the operations of package kernel. Inputs and outputs are tensors in device
// memory; activations are bf16.
//
// An operation checks its arguments on the host, enqueues launches on one stream and returns; Read and Sync wait. If
// only the device can detect an error, such as a slot beyond a pool, the kernel sets a fault bit instead of accessing
// memory. The next Read or Sync returns the fault as an error that wraps kernel.ErrArgument.
//
// Weights are uploaded when they are prepared (weight.go) and stay until the device is closed. Rows that multiply FP8
// blocks are quantised to e4m3 per 128 columns; sums are float32. Temporary memory of an operation is taken from a pool
// that reuses freed memory, so a repeated call allocates nothing.
package op
