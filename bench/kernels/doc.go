// Package kernels times the operations of the CPU backends and says how close they come to what the machine can do.
//
// In flow backends; out flows a report: for each operation, backend and number of threads the best and the middle
// time of several rounds, arithmetic and memory rates, and their share of the machine's own ceilings. The ceilings
// are timed in the same rounds, turn by turn with the operation: reading the same memory with as many threads, and
// multiplying in registers. Every result is compared with the reference before it is timed, with its output poisoned
// first. Operations are reached through the interfaces of package kernel, so a new backend is measured without a line
// here.
package kernels
