// Package peak measures the peak rates of the processor: how fast one core multiplies and adds in registers, and how
// fast cores read memory.
//
// A size or a piece of memory flows in; rates flow out. Kernels are compared with these figures, timed in the same run,
// because machines differ and shared ones drift. The computed values are discarded.
package peak
