// Package losttest holds the test of an engine whose GPU fails: a fault of a kernel makes the context of the whole
// process unusable, so it has a test binary of its own.
package losttest
