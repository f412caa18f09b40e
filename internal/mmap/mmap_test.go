package mmap

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"testing"
)

func write(t *testing.T, content []byte) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

func TestOpenGivesTheBytesOfTheFile(t *testing.T) {
	page := os.Getpagesize()
	for _, size := range []int{0, 1, page - 1, page, page + 1, 3*page + 7} {
		content := make([]byte, size)
		for i := range content {
			content[i] = byte(i * 7)
		}
		f, err := Open(write(t, content))
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(f.Bytes(), content) {
			t.Errorf("%d bytes differ from the file", size)
		}
		for range 2 {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
		if f.Bytes() != nil {
			t.Error("a closed file still has bytes")
		}
	}
}

func TestAMappedFileMayBeRemoved(t *testing.T) {
	path := write(t, []byte("content"))
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if string(f.Bytes()) != "content" {
		t.Errorf("the bytes are %q", f.Bytes())
	}
}

func TestOpenRefuses(t *testing.T) {
	if _, err := Open(t.TempDir()); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a folder: %v", err)
	}
	if _, err := Open(os.DevNull); !errors.Is(err, ErrNotRegular) {
		t.Errorf("a device: %v", err)
	}
	if _, err := Open(filepath.Join(t.TempDir(), "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("no file: %v", err)
	}
}
