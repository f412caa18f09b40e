package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPause is the interval at which a lock of another process is retried.
const lockPause = 200 * time.Millisecond

// locker takes a lock on an open file, if no other process has it.
type locker func(f *os.File) (taken bool, err error)

// take takes the same lock for a blob as Hugging Face's tools, and waits while another process has it. The system
// releases it when a process ends, also after a crash. The file itself is kept, because after deleting it two processes
// could lock two files of the same name.
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
