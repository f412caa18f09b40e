// Package losttest holds tests after which the process is unusable or dead: of an engine whose GPU fails, because a
// fault in a kernel makes the CUDA context of the whole process unusable, and of loads that are killed. It has its own
// test binary.
package losttest
