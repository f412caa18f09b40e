//go:build !linux

package background

func lower() {} // a priority is that of the process
