// Package model measures a whole model at different depths of context: decode steps and prefill chunks, the time of
// each stage in them, and pauses of garbage collection.
//
// The package measures a checkpoint on a device and returns a report. The context is not computed: the cache is filled
// with random rows of realistic magnitude, and complete decode steps or prefill chunks after it are measured. The times
// do not include sampling, scheduling and text.
package model
