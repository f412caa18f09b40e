// Package cuda drives an NVIDIA GPU through the CUDA driver library, from Go alone: no cgo, no CUDA toolkit, no
// runtime library.
//
// Its inputs are plain values: sizes, device addresses, argument structs and the kernel images embedded by package
// image. Its outputs are device memory, streams, events, graphs and launches. The package makes no choices: package
// plan chooses which kernel runs over which layout.
//
// libcuda.so.1 is loaded when the first device is opened. If it is missing, or there is no GPU, every entry point
// returns an error that wraps ErrUnavailable and gives the reason, and the process can continue as a CPU server.
// Building with the tag nocuda leaves the library binding out: the same API, always that error, and a fully static
// binary.
//
// Any goroutine may call any method; a Stream, a Graph and a Pool each belong to one goroutine at a time. Every
// driver status is checked and becomes a *DriverError with the call, its arguments and the driver's message.
// A device address is a Ptr, never a Go pointer: the garbage collector does not free device memory, the caller must.
//
// Tests whose names begin with TestGPU need a Hopper GPU and skip elsewhere with one line. To run them on a machine
// without Go, build them with CGO_ENABLED=0 go test -c ./kernel/cuda and start the result in this folder.
//
// Files: driver*.go load and call the library; device.go, memory.go, pool.go, stream.go, event.go, module.go,
// launch.go, graph.go and tensormap.go wrap one object each; kernels.go finds the embedded kernels; the remaining
// files hold one operation each, its arguments and its launcher. Sub-packages: src holds the kernels' sources,
// compile turns them into images, image embeds those, cubin reads their facts, expect computes what the kernels must
// produce, op implements the operations of package kernel with them, bench times them.
package cuda
