//go:build linux || darwin

package tier

import (
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// lockFolder takes a folder for this process. The lock ends with the file, also when the process dies.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}
