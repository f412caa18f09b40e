//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package main

// terminalWidth always returns false on this system. Output is then plain, and a prompt must be given as an argument.
func terminalWidth(uintptr) (columns int, ok bool) { return 0, false }
