// Package peak measures what the processor itself can do: how fast one core multiplies and adds in registers, and how
// fast cores read memory.
//
// Nothing flows in but a size or a piece of memory; rates flow out. Kernels are compared with these figures, timed in
// the same run, because machines differ and shared ones drift. It computes nothing anybody uses.
package peak
