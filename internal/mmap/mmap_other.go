//go:build !(linux || darwin) || nommap

package mmap

import (
	"io"
	"os"
)

// load reads the first size bytes of f.
func load(f *os.File, size int) ([]byte, error) {
	data := make([]byte, size)
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

func unload([]byte) error { return nil }
