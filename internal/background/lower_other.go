//go:build !linux

package background

func lower() {} // on this system, only processes have a priority
