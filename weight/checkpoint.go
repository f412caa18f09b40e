package weight

import (
	"errors"
	"fmt"
	"io/fs"
	"iter"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"sparrow/internal/mmap"
)

// IndexName is the file that lists the tensors of a checkpoint of several files.
const IndexName = "model.safetensors.index.json"

const (
	singleName = "model.safetensors"
	extension  = ".safetensors"
)

// Checkpoint is an open set of tensors. Its methods are safe for concurrent use, except Close, which unmaps the memory
// of every Tensor.Data.
type Checkpoint struct {
	// Scheme must be set before matrices are read.
	Scheme Scheme

	files    []FileInfo
	maps     map[string]*mmap.File // mapped files by FileInfo.Path; empty for embedded bytes
	stamps   map[string]stamp      // sizes and times of the files when they were opened; empty for embedded bytes
	tensors  map[string]*Tensor
	list     []*Tensor       // the same tensors, in the order of the files; reading it takes less time than the map
	names    func() []string // sorted names, computed on first use, because sorting takes as long as reading the header
	metadata map[string]string
	bytes    int64
	drawn    bool // whether the checkpoint is from FromShapes
	closed   bool
	release  func() error // releases the memory of FromTensors; may be nil
}

// FileInfo describes a file of a checkpoint.
type FileInfo struct {
	Path     string // path of the file, or the name given to FromBytes
	Bytes    int64  // size of the whole file
	Tensors  int    // number of tensors of the checkpoint in this file
	Unlisted int    // number of other tensors, which the index does not place in this file
}

// Open opens the checkpoint in folder dir: the shards in model.safetensors.index.json, or model.safetensors, or the
// only *.safetensors file. Every file is mapped and its header checked; no tensor data is read.
func Open(dir string) (*Checkpoint, error) {
	info, err := os.Stat(dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return nil, fmt.Errorf("weight: checkpoint folder %s: %w", dir, ErrNotFound)
	case err != nil:
		return nil, fmt.Errorf("weight: checkpoint folder: %w", err)
	case !info.IsDir():
		return nil,
			fmt.Errorf("weight: %s is a file, want a checkpoint folder; open a single file with OpenFile",
				dir)
	}
	indexPath := filepath.Join(dir, IndexName)
	if _, err := os.Stat(indexPath); err == nil {
		return openSharded(dir, indexPath)
	} else if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("weight: checkpoint index: %w", err)
	}
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, fmt.Errorf("weight: checkpoint folder: %w", err)
	}
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	one, err := onlyFile(dir, names)
	if err != nil {
		return nil, err
	}
	return OpenFile(filepath.Join(dir, one))
}

// OpenFile opens one safetensors file.
func OpenFile(path string) (*Checkpoint, error) {
	c := newCheckpoint()
	sh, err := c.mapShard(path)
	if err != nil {
		return nil, errors.Join(err, c.Close())
	}
	c.addAll(sh)
	return c, nil
}

// FromBytes opens a safetensors file that is already in memory; name is used as its path. The data is not copied and
// must not change.
func FromBytes(name string, data []byte) (*Checkpoint, error) {
	sh, err := newShard(name, data)
	if err != nil {
		return nil, err
	}
	c := newCheckpoint()
	c.addAll(sh)
	return c, nil
}

// FromTensors returns a checkpoint of tensors in memory or in mapped files. Close calls release, which may be nil.
// Duplicate names are an error.
func FromTensors(files []FileInfo, tensors []Tensor, release func() error) (*Checkpoint, error) {
	c := newCheckpoint()
	c.files, c.release = files, release
	for i := range files {
		at, err := stampOf(files[i].Path)
		if err != nil { // the path names embedded bytes, not a file
			clear(c.stamps)
			break
		}
		c.stamps[files[i].Path] = at
	}
	c.tensors = make(map[string]*Tensor, len(tensors))
	for i := range tensors {
		t := &tensors[i]
		if _, twice := c.tensors[t.Name]; twice {
			return nil, fmt.Errorf("weight: %w: tensor %q occurs twice", ErrMalformed, clip(t.Name))
		}
		c.insert(t)
	}
	return c, nil
}

// FromShapes returns a checkpoint without files, whose tensors have random values (Drawn). Tensors that describe
// others, such as shapes, may have Data. The caller must not use tensors afterwards.
func FromShapes(name string, tensors []Tensor) (*Checkpoint, error) {
	sh := &shard{info: FileInfo{Path: name}, tensors: tensors}
	for i := range sh.tensors {
		t := &sh.tensors[i]
		n, ok := dataBytes(t.DType, t.Shape)
		if !ok || t.Drawn == nil && int64(len(t.Data)) != n {
			return nil, fmt.Errorf("weight: %s: tensor %q: %w: %s of shape %s without data", name, t.Name, ErrMalformed,
				t.DType, shapeText(t.Shape))
		}
		t.File = name
		sh.info.Bytes += n
	}
	c := newCheckpoint()
	c.addAll(sh)
	c.bytes, c.drawn = sh.info.Bytes, true
	return c, nil
}

// Drawn reports whether the checkpoint is from FromShapes: its tensors get random values when they are loaded.
func (c *Checkpoint) Drawn() bool { return c.drawn }

// Names returns the sorted names of all tensors. The caller may modify the slice.
func (c *Checkpoint) Names() []string { return slices.Clone(c.names()) }

// Len returns the number of tensors.
func (c *Checkpoint) Len() int { return len(c.tensors) }

// All yields all tensors in the order of the files. They must not be modified.
func (c *Checkpoint) All() iter.Seq[*Tensor] { return slices.Values(c.list) }

// Tensor returns a tensor by its full name. It must not be modified.
func (c *Checkpoint) Tensor(name string) (*Tensor, bool) {
	t, ok := c.tensors[name]
	return t, ok
}

// Metadata returns a copy of the files' key-value strings. If values differ between shards, the first path is used.
func (c *Checkpoint) Metadata() map[string]string { return maps.Clone(c.metadata) }

// Files returns the files, sorted by path. The caller may modify the slice.
func (c *Checkpoint) Files() []FileInfo { return slices.Clone(c.files) }

// Bytes returns the bytes of all tensors, without headers.
func (c *Checkpoint) Bytes() int64 { return c.bytes }

// Close unmaps the files. After it, every Tensor.Data is invalid and no tensor is found. It may be called more than
// once.
func (c *Checkpoint) Close() error {
	var errs []error
	for _, path := range slices.Sorted(maps.Keys(c.maps)) {
		if err := c.maps[path].Close(); err != nil {
			errs = append(errs, fmt.Errorf("weight: %w", err))
		}
	}
	if c.release != nil {
		errs = append(errs, c.release())
	}
	c.maps, c.tensors, c.list, c.closed, c.release = nil, nil, nil, true, nil
	c.names = func() []string { return nil }
	return errors.Join(errs...)
}

// Files returns the files that [Open] reads in a folder with the files names: the index and its shards, or one file
// without an index. readIndex is called if there is an index. Shards may be missing from names.
func Files(dir string, names []string, readIndex func(name string) ([]byte, error)) ([]string, error) {
	if !slices.Contains(names, IndexName) {
		one, err := onlyFile(dir, names)
		return []string{one}, err
	}
	text, err := readIndex(IndexName)
	if err != nil {
		return nil, err
	}
	byFile, err := parseIndex(filepath.Join(dir, IndexName), text)
	if err != nil {
		return nil, err
	}
	return append([]string{IndexName}, slices.Sorted(maps.Keys(byFile))...), nil
}

// onlyFile returns the checkpoint file of a folder without an index.
func onlyFile(dir string, names []string) (string, error) {
	var found []string
	for _, name := range names {
		if name == singleName {
			return singleName, nil
		}
		if strings.HasSuffix(name, extension) && !strings.Contains(name, "/") {
			found = append(found, name)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return "", fmt.Errorf("weight: %s holds no %s, no %s and no other %s file: %w", dir, IndexName, singleName,
			extension, ErrNotFound)
	}
	return "", fmt.Errorf("weight: %s holds %d %s files, the first of them %s, but no %s, which lists their tensors: "+
		"%w; download the index, or open one file with OpenFile",
		dir, len(found), extension, found[0], IndexName, ErrNotFound)
}

// shard is a checked file whose tensors were not yet added to the checkpoint.
type shard struct {
	info     FileInfo
	tensors  []Tensor
	metadata map[string]string
}

func newCheckpoint() *Checkpoint {
	c := &Checkpoint{maps: make(map[string]*mmap.File), stamps: make(map[string]stamp),
		metadata: make(map[string]string)}
	c.names = sync.OnceValue(func() []string { return slices.Sorted(maps.Keys(c.tensors)) })
	return c
}

// newShard checks the contents of a file and returns its tensors, which are slices of data.
func newShard(path string, data []byte) (*shard, error) {
	h, err := parseHeader(path, data)
	if err != nil {
		return nil, err
	}
	sh := &shard{
		info:     FileInfo{Path: path, Bytes: int64(len(data))},
		tensors:  make([]Tensor, len(h.entries)),
		metadata: h.metadata,
	}
	for i, e := range h.entries {
		// The range is in bounds: checkTiling has compared all ranges with len(data).
		begin, end := h.dataStart+e.begin, h.dataStart+e.end
		sh.tensors[i] = Tensor{Name: e.name, DType: e.dtype, Shape: e.shape, Data: data[begin:end:end], File: path,
			Offset: begin}
	}
	return sh, nil
}

// mapShard maps and checks a file. Close unmaps it, also after an error.
func (c *Checkpoint) mapShard(path string) (*shard, error) {
	f, err := mmap.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("weight: file %s: %w", path, ErrNotFound)
	}
	if err != nil {
		return nil, fmt.Errorf("weight: %w", err)
	}
	c.maps[path] = f
	if c.stamps[path], err = stampOf(path); err != nil {
		return nil, fmt.Errorf("weight: %w", err)
	}
	return newShard(path, f.Bytes())
}

// addAll adds all tensors of the only file of a checkpoint.
func (c *Checkpoint) addAll(sh *shard) {
	c.tensors, c.list = make(map[string]*Tensor, len(sh.tensors)), make([]*Tensor, 0, len(sh.tensors))
	for i := range sh.tensors {
		c.add(sh, &sh.tensors[i])
	}
	c.addFile(sh)
}

func (c *Checkpoint) add(sh *shard, t *Tensor) {
	c.insert(t)
	sh.info.Tensors++
}

// insert adds a tensor with a new name.
func (c *Checkpoint) insert(t *Tensor) {
	c.tensors[t.Name] = t
	c.list = append(c.list, t)
	c.bytes += int64(len(t.Data))
}

// addFile adds the description of a file, after its tensors were added.
func (c *Checkpoint) addFile(sh *shard) {
	sh.info.Unlisted = len(sh.tensors) - sh.info.Tensors
	c.files = append(c.files, sh.info)
	for k, v := range sh.metadata {
		if _, ok := c.metadata[k]; !ok {
			c.metadata[k] = v
		}
	}
}
