package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPause is the interval at which taking a lock is retried.
const lockPause = 200 * time.Millisecond

// locker locks an open file; taken is false if another process has the lock.
type locker func(f *os.File) (taken bool, err error)

// take locks a blob, and waits while another process, such as Hugging Face's tools, has the lock. The system releases
// the lock if a process ends. The lock file is not deleted, because otherwise two processes could lock two files of the
// same name.
func (try locker) take(ctx context.Context, path string, waiting func()) (unlock func() error, err error) {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return nil, fmt.Errorf("hub: %w", err)
	}
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("hub: lock: %w", err)
	}
	for told := false; ; told = true {
		taken, err := try(f)
		if err != nil {
			return nil, fmt.Errorf("hub: lock %s: %w", path, errors.Join(err, f.Close()))
		}
		if taken {
			return f.Close, nil
		}
		if !told {
			waiting()
		}
		if err := sleep(ctx, lockPause); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
}
