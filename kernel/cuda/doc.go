// Package cuda uses an NVIDIA GPU through the CUDA driver library, without cgo, CUDA toolkit or CUDA runtime library.
//
// Its inputs are plain values: sizes, device addresses, argument structs and the kernel images embedded by package
// image. Its outputs are device memory, streams, events, graphs and launches. Package plan decides which kernel runs
// over which layout.
//
// libcuda.so.1 is loaded when the first device is opened. If it is missing, or there is no GPU, every entry point
// returns an error that wraps ErrUnavailable and gives the reason, and the process can continue as a CPU server.
// With the build tag nocuda, the binary is static and has no binding to the library: all entry points return this
// error.
//
// Any goroutine may call any method; a Stream, a Graph and a Pool each belong to one goroutine at a time. Every
// driver status is checked and becomes a *DriverError with the call, its arguments and the driver's message.
// A device address is a Ptr, not a Go pointer: the garbage collector does not free device memory.
//
// Tests whose names begin with TestGPU need a Hopper GPU and are skipped elsewhere. To run them on a machine without
// Go, build them with CGO_ENABLED=0 go test -c ./kernel/cuda and run the binary in this folder.
//
// Files: driver*.go load and call the library; device.go, memory.go, pool.go, stream.go, event.go, module.go,
// launch.go, graph.go and tensormap.go wrap one object each; kernels.go finds the embedded kernels; the remaining
// files hold one operation each, its arguments and its launcher. Sub-packages: src holds the kernels' sources,
// compile compiles them to images, image embeds the images, cubin reads metadata of images, expect computes the
// expected results of kernels, op implements the operations of package kernel, bench measures times.
package cuda
