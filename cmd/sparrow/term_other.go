//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

// terminalWidth reports no terminal on this system: output is plain, and a prompt must be given.
func terminalWidth(uintptr) (columns int, ok bool) { return 0, false }
