// Package filelock locks files against other processes. A lock ends when its file is closed, and when the process ends.
package filelock

import "errors"

// ErrNone is a file system without locks, as some of clusters are.
var ErrNone = errors.New("the file system has no locks")
