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

// CreateSharded writes a checkpoint folder that Open reads: tensors are sorted by name and cut into files of at most
// maxBytes of tensor data (a larger tensor gets a file to itself; maxBytes 0 means one file). One file is called
// model.safetensors; several are called model-00001-of-0000N.safetensors, with an index.
//
// The folder is created if need be and may hold other files, but no checkpoint. The index is written last, so an
// interrupted run never looks complete, and on an error the files written are removed.
func CreateSharded(dir string, tensors []Source, metadata map[string]string, maxBytes int64) error {
	if maxBytes < 0 {
		return fmt.Errorf("weight: shard size of %d bytes: %w; give a positive size, or 0 for one file", maxBytes,
			ErrSource)
	}
	if _, err := arrange(tensors); err != nil { // reports all problems before the first byte is written
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

// cut sorts the tensors by name and starts a new group whenever the next one would exceed maxBytes.
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

// Vacant fails with ErrExists when dir holds anything that Open would read. A folder that does not exist is vacant.
func Vacant(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("weight: checkpoint folder: %w", err)
	}
	var found []string // names in sorted order, because ReadDir sorts
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
