// Package model measures a whole model at different depths of context: decode steps and prefill chunks, the share of
// each stage in them, and the collector's pauses meanwhile.
//
// A loaded checkpoint and a device flow in, a report flows out. Deep contexts are not computed token by token: the
// cache is filled with random rows of plausible size, and what is measured on top of it, one decode step or one
// prefill chunk at that depth, runs for real. Times are of steps alone: no sampling, no scheduling, no text.
package model
