// Package filelock locks files against other processes. A lock ends when its file is closed or its process ends.
package filelock

import "errors"

// ErrNone means that the file system has no locks, as some cluster file systems do.
var ErrNone = errors.New("the file system has no locks")
