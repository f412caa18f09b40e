//go:build !(linux || darwin)

package tier

import (
	"os"
	"path/filepath"
)

// lockFolder opens the lock file; this system is not asked for a lock, and two servers must not share a folder.
func lockFolder(dir string) (*os.File, error) {
	return os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
}
