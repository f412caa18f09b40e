package main

import (
	"math"

	"golang.org/x/sys/windows"
)

// freeBytes returns what this user may still write to the volume that holds path.
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
