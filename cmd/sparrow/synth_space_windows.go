package main

import (
	"math"

	"golang.org/x/sys/windows"
)

// freeBytes returns the number of bytes that this user may still write to the volume of path.
func freeBytes(path string) (free int64, known bool) {
	name, err := windows.UTF16PtrFromString(path)
	if err != nil {
		return 0, false
	}
	var n uint64
	if err := windows.GetDiskFreeSpaceEx(name, &n, nil, nil); err != nil {
		return 0, false
	}
	return int64(min(n, math.MaxInt64)), true
}
