package weight

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// CreateSharded writes a checkpoint to a folder. Tensors are sorted by name and divided into files of at most maxBytes
// bytes of tensor data; a larger tensor gets its own file, and maxBytes 0 means one file. A single file is named
// model.safetensors; several are named model-00001-of-0000N.safetensors, with an index.
//
// The folder is created if necessary; it must not contain a checkpoint. The index is written last, so that an
// interrupted run is incomplete. After an error, the written files are removed.
func CreateSharded(dir string, tensors []Source, metadata map[string]string, maxBytes int64) error {
	if maxBytes < 0 {
		return fmt.Errorf("weight: shard size of %d bytes: %w; give a positive size, or 0 for one file", maxBytes,
			ErrSource)
	}
	if _, err := arrange(tensors); err != nil { // report all problems before anything is written
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return fmt.Errorf("weight: checkpoint folder: %w", err)
	}
	if err := Vacant(dir); err != nil {
		return err
	}
	groups := cut(tensors, maxBytes)
	index := shardIndex{WeightMap: make(map[string]string, len(tensors))}
	var written []string
	err := func() error {
		for i, group := range groups {
			name := singleName
			if len(groups) > 1 {
				name = fmt.Sprintf("model-%05d-of-%05d%s", i+1, len(groups), extension)
			}
			path := filepath.Join(dir, name)
			if err := Create(path, group, metadata); err != nil {
				return err
			}
			written = append(written, path)
			for j := range group {
				n, _ := group[j].Bytes()
				index.Metadata.TotalSize += n
				index.WeightMap[group[j].Name] = name
			}
		}
		if len(groups) == 1 {
			return nil
		}
		return writeIndex(filepath.Join(dir, IndexName), &index)
	}()
	if err == nil {
		return nil
	}
	errs := []error{err}
	for _, path := range written {
		errs = append(errs, os.Remove(path))
	}
	return errors.Join(errs...)
}

// shardIndex is the content of model.safetensors.index.json.
type shardIndex struct {
	Metadata struct {
		TotalSize int64 `json:"total_size"`
	} `json:"metadata"`
	WeightMap map[string]string `json:"weight_map"` // file of each tensor
}

func writeIndex(path string, index *shardIndex) error {
	text, err := json.MarshalIndent(index, "", "  ") // Marshal sorts the tensors
	if err != nil {
		return fmt.Errorf("weight: checkpoint index: %w", err)
	}
	return replaceFile(path, func(w io.Writer) error {
		_, err := w.Write(append(text, '\n'))
		return err
	})
}

// cut sorts the tensors by name and divides them into groups of at most maxBytes bytes.
func cut(tensors []Source, maxBytes int64) [][]Source {
	sorted := slices.SortedFunc(slices.Values(tensors), func(a, b Source) int {
		return strings.Compare(a.Name, b.Name)
	})
	if maxBytes == 0 || len(sorted) == 0 {
		return [][]Source{sorted}
	}
	var groups [][]Source
	start, size := 0, int64(0)
	for i := range sorted {
		n, _ := sorted[i].Bytes()
		if i > start && n > maxBytes-size {
			groups = append(groups, sorted[start:i])
			start, size = i, 0
		}
		size += n
	}
	return append(groups, sorted[start:])
}

// Vacant returns ErrExists if the folder contains files that Open would read. A folder that does not exist is vacant.
func Vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weight: checkpoint folder: %w", err)
	}
	var found []string // sorted, because ReadDir sorts
	for _, e := range entries {
		if e.Name() == IndexName || strings.HasSuffix(e.Name(), extension) {
			found = append(found, e.Name())
		}
	}
	if len(found) == 0 {
		return nil
	}
	return fmt.Errorf("weight: write to %s: %w: it holds %s; choose an empty folder or remove them", dir, ErrExists,
		strings.Join(found, ", "))
}
