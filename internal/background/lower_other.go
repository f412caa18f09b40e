//go:build !linux

package background

func lower() {} // on this system, only a process has a priority
