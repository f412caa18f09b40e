package synth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"sparrow/internal/model/config"
	"sparrow/weight"
)

// File is a small file next to the weights, such as a tokenizer.
type File struct {
	Name string
	Data []byte
}

// Write writes the checkpoint to the folder dir, which it creates if necessary. progress, if not nil, is called with
// the number of bytes of tensor data written so far. If ctx ends, or after any error, the written files are removed. If
// dir already has a checkpoint, Write returns weight.ErrExists.
func (c *Checkpoint) Write(ctx context.Context, dir string, beside []File,
	progress func(done, total int64)) (err error) {
	if err := Vacant(dir, beside); err != nil {
		return err
	}
	made, err := absent(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("synth: %w", err)
	}
	var written []string
	defer func() {
		if err == nil {
			return
		}
		for _, path := range append(written, made...) {
			err = errors.Join(err, os.Remove(path))
		}
	}()
	for _, f := range append([]File{{"config.json", c.text}}, beside...) {
		path := filepath.Join(dir, f.Name)
		if err := writeNew(path, f.Data); err != nil {
			return err
		}
		written = append(written, path)
	}
	fill := &filler{ctx: ctx, seed: c.options.Seed, repeat: c.options.Repeat,
		pow2: c.Config().Family != config.GLMMoeDSA}
	if progress != nil {
		done, total := int64(0), c.Size().Bytes
		fill.progress = func(n int) {
			done += int64(n)
			progress(done, total)
		}
	}
	// transformers reads only files with the field format.
	about := map[string]string{"format": "pt", "made_by": "sparrow synth",
		"seed": strconv.FormatUint(c.options.Seed, 10)}
	return weight.CreateSharded(dir, c.sources(fill), about, c.options.ShardBytes)
}

// Vacant returns weight.ErrExists if dir contains a file that Write would have to replace. It returns another error if
// dir is not a folder and cannot be created.
func Vacant(dir string, beside []File) error {
	if _, err := absent(dir); err != nil {
		return err
	}
	for _, f := range append([]File{{Name: "config.json"}}, beside...) {
		path := filepath.Join(dir, f.Name)
		if _, err := os.Lstat(path); err == nil {
			return taken(path)
		}
	}
	return weight.Vacant(dir)
}

// taken returns the error that a file exists.
func taken(path string) error {
	return fmt.Errorf("synth: %w: %s exists; choose an empty folder", weight.ErrExists, path)
}

// absent lists the folders that must be created for dir, innermost first.
func absent(dir string) (list []string, err error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil {
			if !info.IsDir() {
				return nil, fmt.Errorf("synth: %s is a file; give a folder", at)
			}
			return list, nil
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("synth: %w", err)
		}
		list = append(list, at)
		if filepath.Dir(at) == at {
			return list, nil
		}
	}
}

// writeNew writes a file that must not exist yet.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return taken(path)
	}
	if err != nil {
		return fmt.Errorf("synth: %w", err)
	}
	defer func() {
		if e := f.Close(); err == nil {
			err = e
		}
		if err != nil {
			err = errors.Join(fmt.Errorf("synth: %w", err), os.Remove(path))
		}
	}()
	_, err = f.Write(data)
	return err
}
