// Package mmap makes the bytes of a file available as a read-only slice.
//
// The input is the path of a regular file, the output is a byte slice as long as the file. On Linux and macOS the slice
// is a shared mapping: opening reads nothing, and pages are loaded when they are accessed. On other systems, and with
// the build tag nommap, the file is read into memory. The package never writes to a file and never interprets the
// bytes.
package mmap

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
)

// ErrNotRegular is returned for the path of a folder, a pipe or a device. Only the bytes of regular files can be
// mapped.
var ErrNotRegular = errors.New("the path is not a regular file")

// File is the content of one open file.
//
// The bytes must not be written to: a mapping is read-only memory, and a write ends the process. If another process
// truncates the file while it is mapped, reading beyond the new end ends the process too.
type File struct {
	path string
	data []byte
}

// Open maps the regular file at path. The descriptor is closed before Open returns; the mapping does not need it.
func Open(path string) (*File, error) {
	// Stat is called before opening, because opening a pipe waits for its other end.
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, notRegular(path, info)
	}
	size := info.Size()
	if size > math.MaxInt {
		return nil, fmt.Errorf("map %s: the file has %d bytes, more than the address space of this build", path, size)
	}
	if size == 0 { // an empty range cannot be mapped
		return &File{path: path}, nil
	}
	data, err := load(f, int(size))
	if err != nil {
		return nil, fmt.Errorf("map %s (%d bytes): %w", path, size, err)
	}
	return &File{path: path, data: data}, nil
}

// Bytes returns the whole file. The slice is valid until Close.
func (f *File) Bytes() []byte { return f.data }

// Close unmaps the memory; every slice of Bytes is invalid afterwards. A second Close does nothing.
func (f *File) Close() error {
	data := f.data
	f.data = nil
	if len(data) == 0 {
		return nil
	}
	if err := unload(data); err != nil {
		return fmt.Errorf("unmap %s: %w", f.path, err)
	}
	return nil
}

func notRegular(path string, info fs.FileInfo) error {
	return fmt.Errorf("map %s: %w (mode %s)", path, ErrNotRegular, info.Mode())
}
