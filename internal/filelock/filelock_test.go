package filelock

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// A file is locked by one of those that opened it at a time, until it is closed.
func TestOneLocksAFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	open := func() *os.File {
		t.Helper()
		f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { f.Close() })
		return f
	}
	first, second := open(), open()
	if ok, err := Try(first); errors.Is(err, ErrNone) {
		t.Skipf("the file system has no locks: %v", err)
	} else if !ok || err != nil {
		t.Fatalf("the first: %v, %v", ok, err)
	}
	if ok, err := Try(second); ok || err != nil {
		t.Errorf("the second, beside the first: %v, %v", ok, err)
	}
	if err := first.Close(); err != nil {
		t.Fatal(err)
	}
	if ok, err := Try(second); !ok || err != nil {
		t.Errorf("the second, after the first: %v, %v", ok, err)
	}
	if ok, err := Try(first); ok || err == nil {
		t.Errorf("a closed file: %v, %v", ok, err)
	}
}
