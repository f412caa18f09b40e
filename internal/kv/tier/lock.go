package tier

import (
	"errors"
	"os"
	"path/filepath"

	"sparrow/internal/filelock"
)

// lockFolder locks a folder for this process, until the returned file is closed or the process ends.
func lockFolder(dir string) (*os.File, error) {
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	taken, err := filelock.Try(f)
	if err == nil && !taken {
		err = errors.New("another process holds its lock")
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
