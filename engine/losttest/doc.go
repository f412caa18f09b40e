// Package losttest holds tests that a process does not survive: of an engine whose GPU fails, since a fault of a kernel
// makes the context of the whole process unusable, and of loads that are killed. It has its own test binary.
package losttest
