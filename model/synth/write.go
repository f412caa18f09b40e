package synth

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"

	"sparrow/model/config"
	"sparrow/weight"
)

// File is a small file that goes beside the weights, such as a tokenizer.
type File struct {
	Name string
	Data []byte
}

// Write makes the checkpoint in dir, which is created if need be and must hold no checkpoint. Progress, when not nil, is told how many of the
// bytes of tensor data are written. When ctx ends, or anything fails, what was written is removed again. A folder that holds a checkpoint is
// refused with weight.ErrExists.
func (c *Checkpoint) Write(ctx context.Context, dir string, beside []File, progress func(done, total int64)) (err error) {
	made, err := makeFolder(dir)
	if err != nil {
		return err
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
	fill := &filler{ctx: ctx, seed: c.options.Seed, pow2: c.Config().Family != config.GLMMoeDSA}
	if progress != nil {
		done, total := int64(0), c.Size().Bytes
		fill.tell = func(n int) {
			done += int64(n)
			progress(done, total)
		}
	}
	// transformers reads files only that say where they come from.
	about := map[string]string{"format": "pt", "made_by": "sparrow synth", "seed": strconv.FormatUint(c.options.Seed, 10)}
	return weight.CreateSharded(dir, c.sources(fill), about, c.options.ShardBytes)
}

// makeFolder creates dir and returns the folders that were not there before, innermost first.
func makeFolder(dir string) (made []string, err error) {
	for at := filepath.Clean(dir); ; at = filepath.Dir(at) {
		info, err := os.Stat(at)
		if err == nil {
			if !info.IsDir() {
				return nil, fmt.Errorf("synth: %s is a file; give a folder", at)
			}
			break
		}
		if !errors.Is(err, fs.ErrNotExist) {
			return nil, fmt.Errorf("synth: %w", err)
		}
		made = append(made, at)
		if filepath.Dir(at) == at {
			break
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, fmt.Errorf("synth: %w", err)
	}
	return made, nil
}

// writeNew writes a file that is not there yet.
func writeNew(path string, data []byte) (err error) {
	f, err := os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
	if errors.Is(err, fs.ErrExist) {
		return fmt.Errorf("synth: %w: %s is there; choose an empty folder", weight.ErrExists, path)
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
