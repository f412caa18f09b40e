// Package kernels times the operations of the CPU backends and compares them with the peak rates of the machine.
//
// For each operation, backend and number of threads it reports the best and the median time of several rounds,
// arithmetic and memory rates, and their share of the machine's ceilings. The ceilings are timed in the same rounds,
// alternating with the operation: reading the same memory with the same number of threads, and multiplying in
// registers. Before an operation is timed, its output is filled with invalid values (poisoned), and its result is
// compared with the reference. Operations are called through the interfaces of package kernel, so that a new backend
// needs no change here.
package kernels
