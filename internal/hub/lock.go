package hub

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// lockPause is the interval at which a lock of another process is tried again.
const lockPause = 200 * time.Millisecond

// locker takes a lock on an open file, if no other process has it.
type locker func(f *os.File) (taken bool, err error)

// take takes the lock that Hugging Face's tools take for the same blob, and waits while another process has it. The
// system releases it when a process ends, also after a crash; the file itself stays, as deleting it would let two
// processes lock two files of one name.
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
