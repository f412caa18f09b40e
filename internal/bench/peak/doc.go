// Package peak measures the peak rates of the processor: how fast one core multiplies and adds in registers, and how
// fast cores read memory.
//
// Kernels are compared with these rates, timed in the same run, because machines differ and the speed of shared
// machines changes. The computed values are discarded.
package peak
