// Package losttest holds tests that make the process unusable or kill it: tests of an engine whose GPU fails, because a
// fault in a kernel makes the CUDA context of the whole process unusable, and of loads that are killed. These tests
// have their own test binary.
package losttest
