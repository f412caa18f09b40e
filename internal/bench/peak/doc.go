// Package peak measures the peak rates of the processor: the arithmetic rate of one core on registers, and the rate at
// which cores read memory.
//
// Benchmarks compare kernels with these rates, measured in the same run, because the speed of a shared machine changes
// over time.
package peak
