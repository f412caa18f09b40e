// Package archive unpacks checkpoints that are stored as archives for tests: its input is the name of a file, its
// output a folder.
package archive

import (
	"archive/tar"
	"bytes"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
	"testing"
)

// Unpack unpacks FILE.tar.gz below a folder that is removed when the test ends, and returns that folder.
func Unpack(t testing.TB, file string) string {
	t.Helper()
	dir := t.TempDir()
	if err := unpack(dir, file); err != nil {
		t.Fatalf("%s: %v", file, err)
	}
	return dir
}

func unpack(dir, file string) error {
	once, _ := archives.LoadOrStore(file, sync.OnceValues(func() ([]byte, error) { return decompress(file) }))
	data, err := once.(func() ([]byte, error))()
	if err != nil {
		return err
	}
	for r := tar.NewReader(bytes.NewReader(data)); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if !filepath.IsLocal(h.Name) {
			return fmt.Errorf("the path %s is outside the archive", h.Name)
		}
		if h.Typeflag != tar.TypeReg {
			continue // folders are created together with their files
		}
		if err := write(filepath.Join(dir, h.Name), r); err != nil {
			return err
		}
	}
}

// archives maps the path of an archive to a function that decompresses it on its first call: many tests of a package
// unpack the same archive, and decompression takes longer than writing the files.
var archives sync.Map

func decompress(file string) ([]byte, error) {
	f, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

func write(path string, from io.Reader) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	to, err := os.Create(path)
	if err != nil {
		return err
	}
	_, err = io.Copy(to, from)
	return errors.Join(err, to.Close())
}
