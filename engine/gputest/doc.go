// Package gputest holds tests that compare an engine on a GPU with an engine on a CPU. Its test binary is small enough
// to copy to a machine without Go (kernel/cuda/gpu-tests.sh).
package gputest
