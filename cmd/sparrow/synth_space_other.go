//go:build !(linux || darwin || freebsd || dragonfly || windows)

package main

// freeBytes is not implemented on this system. On a full file system, writing fails.
func freeBytes(string) (free int64, known bool) { return 0, false }
