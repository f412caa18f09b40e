// Package gputest holds tests that compare an engine on a GPU with one on a CPU, in a test binary that is small enough
// to be carried to a machine without Go (kernel/cuda/gpu-tests.sh).
package gputest
