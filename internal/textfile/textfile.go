// Package textfile reads the small files of a checkpoint folder, which may come from anyone.
//
// In flow a path and a limit, out flow the bytes of a regular file of at most that size. A pipe, a device or a folder
// is refused without being opened, and a file that is too large without being read.
package textfile

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"sparrow/internal/unit"
)

// ErrNotText is wrapped where a path is no regular file, or one larger than any file of its kind.
var ErrNotText = errors.New("not a text file of a checkpoint")

// Limits of the files. Released ones are far smaller: a tokenizer.json has 8 MB.
const (
	Config    = 16 << 20  // config.json, generation_config.json, tokenizer_config.json and templates
	Tokenizer = 256 << 20 // tokenizer.json
	Index     = 256 << 20 // model.safetensors.index.json
)

// Read is the content of a regular file of at most limit bytes.
func Read(path string, limit int64) ([]byte, error) {
	info, err := os.Stat(path) // opening a pipe would wait for its other end
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is a %s: %w", path, kind(info.Mode()), ErrNotText)
	}
	if info.Size() > limit {
		return nil, fmt.Errorf("%s has %s, more than the %s that such a file may have: %w", path,
			unit.Bytes(info.Size()), unit.Bytes(limit), ErrNotText)
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err = f.Stat(); err == nil && !info.Mode().IsRegular() { // replaced meanwhile
		return nil, fmt.Errorf("%s is a %s: %w", path, kind(info.Mode()), ErrNotText)
	}
	data, err := io.ReadAll(io.LimitReader(f, limit+1)) // it may grow, and some file systems say 0
	if err == nil && int64(len(data)) > limit {
		err = fmt.Errorf("%s has more than the %s that such a file may have: %w", path, unit.Bytes(limit), ErrNotText)
	}
	return data, err
}

// Optional is Read of a file that may be missing: nil without it.
func Optional(path string, limit int64) ([]byte, error) {
	data, err := Read(path, limit)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

func kind(m os.FileMode) string {
	switch {
	case m.IsDir():
		return "folder"
	case m&os.ModeNamedPipe != 0:
		return "pipe"
	case m&os.ModeSocket != 0:
		return "socket"
	default:
		return "device"
	}
}
