// Package textfile reads text files that users name and those of checkpoint folders, which are not trusted, and
// replaces files atomically.
//
// The input is a path and a limit, the output is the bytes of a regular file of at most that size. For a pipe, a device
// or a folder it returns an error without opening it, because opening a pipe waits for its other end. A file that is
// too large is not read.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"sparrow/internal/unit"
)

// ErrNotText is wrapped if a path is not a regular file, or if the file is larger than a file of its kind may be.
var ErrNotText = errors.New("not a text file")

// Maximum sizes of files, in bytes. Files of releases are far smaller: a tokenizer.json has 8 MB.
const (
	Config    = 16 << 20  // config.json, generation_config.json, tokenizer_config.json and templates
	Tokenizer = 256 << 20 // tokenizer.json
	Index     = 256 << 20 // model.safetensors.index.json
	Document  = 256 << 20 // files that a user names: a document to ask about, results of a measurement
)

// Read returns the content of a regular file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	f, err := Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && info.Size() > limit {
		return nil, fmt.Errorf("%s has %s, more than the %s that such a file may have: %w", path,
			unit.Bytes(info.Size()), unit.Bytes(limit), ErrNotText)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // the file may grow, and some file systems report a size of 0
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than the %s that such a file may have: %w", path, unit.Bytes(limit), ErrNotText)
	}
	return data, err
}

// Open opens a regular file, for content that is read in pieces.
func Open(path string) (*os.File, error) {
	info, err := os.Stat(path)
	if err == nil {
		err = Check(path, info)
	}
	if err != nil {
		return nil, err
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	if info, err = f.Stat(); err == nil {
		err = Check(path, info) // the file may have been replaced in the meantime
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}

// Replace replaces a file atomically by one with the contents that write writes.
func Replace(path string, write func(io.Writer) error) (err error) {
	f, err := os.CreateTemp(filepath.Dir(path), filepath.Base(path)+".*.part")
	if err != nil {
		if p := (*fs.PathError)(nil); errors.As(err, &p) {
			err = p.Err // without the path, which is that of a temporary file
		}
		return fmt.Errorf("%s cannot be written: %w", path, err)
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, os.Remove(f.Name()))
		}
	}()
	err = errors.Join(write(f), f.Chmod(0o644), f.Sync(), f.Close())
	if err != nil {
		return err
	}
	return os.Rename(f.Name(), path)
}

// Check returns an error if a path is not a regular file.
func Check(path string, info fs.FileInfo) error {
	if info.Mode().IsRegular() {
		return nil
	}
	return fmt.Errorf("%s is a %s, %w; give a regular file", path, Kind(info.Mode()), ErrNotText)
}

// Optional returns the result of Read, or nil if the file does not exist.
func Optional(path string, limit int64) ([]byte, error) {
	data, err := Read(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// Kind returns the kind of file of a mode as text, such as folder.
func Kind(m fs.FileMode) string {
	switch {
	case m.IsRegular():
		return "file"
	case m.IsDir():
		return "folder"
	case m&fs.ModeNamedPipe != 0:
		return "pipe"
	case m&fs.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}
