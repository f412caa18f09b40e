// Package model measures a whole model at different depths of context: decode steps and prefill chunks, the share of
// each stage in them, and the garbage collector's pauses.
//
// The package measures a checkpoint on a device and returns a report. Deep contexts are not computed token by token:
// the cache is filled with random rows of plausible size, and a complete decode step or prefill chunk at that depth is
// measured. Times are those of steps, without sampling, scheduling and text.
package model
