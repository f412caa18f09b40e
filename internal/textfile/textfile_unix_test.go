//go:build unix

package textfile

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A path that is not a regular file, or that is larger than allowed, is refused immediately: the file is not read, and
// opening it does not block.
func TestOnlySmallRegularFilesAreRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	if err := os.WriteFile(path("good"), []byte("{}"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(path("fifo"), 0o644); err != nil {
		t.Skipf("no pipes here: %v", err)
	}
	sparse, err := os.Create(path("sparse"))
	if err == nil {
		err = errors.Join(sparse.Truncate(40<<30), sparse.Close())
	}
	if err != nil {
		t.Skipf("no sparse files here: %v", err)
	}
	if data, err := Read(path("good"), 2); err != nil || string(data) != "{}" {
		t.Errorf("good file: %q, %v", data, err)
	}
	for name, want := range map[string]string{
		path("good"): "more than the 1", path("fifo"): "is a pipe", path("sparse"): "40.00 GiB",
		"/dev/zero": "is a device", dir: "is a folder",
	} {
		_, err := Read(name, 1)
		if !errors.Is(err, ErrNotText) || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	if _, err := Read(path("missing"), 1); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("missing file: %v", err)
	}
	if data, err := Optional(path("missing"), 1); data != nil || err != nil {
		t.Errorf("missing file that may be: %q, %v", data, err)
	}
}
