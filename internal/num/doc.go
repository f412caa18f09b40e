// Package num holds the number formats of caches and checkpoints: bf16, f16, e4m3, e8m0 and e2m1, the block quantisers
// that use them, and the Hadamard rotation of the indexer.
//
// It converts float32 values to encoded bit patterns and back. Every narrowing rounds to nearest, ties to even, unless
// its comment states otherwise. Nothing here allocates, reads the environment or depends on the CPU: results are
// bitwise equal on all machines.
package num
