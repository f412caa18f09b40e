package gguf

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math/bits"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"sparrow/internal/mmap"
	"sparrow/internal/textfile"
)

// File is an open model: one file, or all splits. Close unmaps the memory of every Tensor.Data.
type File struct {
	Version  uint32
	Metadata Metadata
	Tensors  []Tensor // in the order of the file, then those of later splits
	Parts    []Part

	maps []*mmap.File
}

// Part is one file of a model.
type Part struct {
	Path    string
	Bytes   int64
	Tensors int
}

// Tensor is a named array. Data is a slice of the mapped file and must not be modified.
type Tensor struct {
	Name   string
	Type   Type
	Shape  []int // outermost dimension first; files have the reverse order
	Data   []byte
	File   string
	Offset int64 // offset of Data in File, in bytes
}

// Open maps a model. path may be any of its splits; all of them are opened.
func Open(path string) (_ *File, err error) {
	out := &File{}
	defer func() {
		if err != nil {
			err = errors.Join(err, out.Close())
		}
	}()
	first, err := out.add(path)
	if err != nil {
		return nil, err
	}
	count, _ := first.Metadata.Int("split.count")
	if count <= 1 {
		out.Version, out.Metadata, out.Tensors = first.Version, first.Metadata, first.Tensors
		return out, nil
	}
	return out, out.openSplits(path, first, int(count))
}

// openSplits opens the other splits of a model and joins all in order. The metadata is that of the first split.
func (f *File) openSplits(path string, named *File, count int) error {
	const most = 99999 // five digits in the file names
	if count > most {
		return fmt.Errorf("gguf: %s: %w: split.count is %d; at most %d parts are "+
			"supported", path, ErrMalformed, count, most)
	}
	number, _ := named.Metadata.Int("split.no") // index of the split, from 0
	suffix := splitSuffix(int(number), count)
	stem, ok := strings.CutSuffix(filepath.Base(path), suffix)
	if !ok {
		return fmt.Errorf("gguf: %s is split %d of %d, so its name must end in %s for the others to be found; rename "+
			"the files as they were published", path, number+1, count, suffix)
	}
	f.Parts = nil
	for i := range count {
		part := named
		if int64(i) != number {
			var err error
			name := filepath.Join(filepath.Dir(path), stem+splitSuffix(i, count))
			part, err = f.add(name)
			if errors.Is(err, fs.ErrNotExist) {
				return fmt.Errorf("gguf: part %d of %d is missing: %s: %w; all parts must be in one folder", i+1,
					count, name, fs.ErrNotExist)
			}
			if err != nil {
				return err
			}
		} else {
			f.Parts = append(f.Parts, named.Parts...)
		}
		no, _ := part.Metadata.Int("split.no")
		if n, _ := part.Metadata.Int("split.count"); n != int64(count) || no != int64(i) {
			return fmt.Errorf("gguf: %s: %w: its metadata has split %d of %d, but its name has %d of %d",
				f.Parts[i].Path, ErrMalformed, no+1, n, i+1, count)
		}
		if i == 0 {
			f.Version, f.Metadata = part.Version, part.Metadata
		}
		f.Tensors = append(f.Tensors, part.Tensors...)
	}
	if want, ok := f.Metadata.Int("split.tensors.count"); ok && want != int64(len(f.Tensors)) {
		return fmt.Errorf("gguf: %s: %w: the %d parts hold %d tensors, but split.tensors.count is "+
			"%d", path, ErrMalformed,
			count, len(f.Tensors), want)
	}
	return checkNames(path, f.Tensors)
}

func splitSuffix(i, count int) string { return fmt.Sprintf("-%05d-of-%05d%s", i+1, count, Extension) }

// Extension is the extension of GGUF files.
const Extension = ".gguf"

var splitName = regexp.MustCompile(`^(.+)-[0-9]{5}-of-[0-9]{5}$`)

// Stem returns the name of a file without its extension and, for a split, without its number.
func Stem(name string) string {
	name = strings.TrimSuffix(name, filepath.Ext(name))
	if m := splitName.FindStringSubmatch(name); m != nil {
		return m[1]
	}
	return name
}

// Begins reports whether a regular file begins as a GGUF file, regardless of its name.
func Begins(path string) bool {
	f, err := textfile.Open(path)
	if err != nil {
		return false
	}
	defer f.Close()
	var magic [len(magicNumber)]byte
	_, err = io.ReadFull(f, magic[:])
	return err == nil && string(magic[:]) == magicNumber
}

// add maps a file and parses it.
func (f *File) add(path string) (*File, error) {
	m, err := mmap.Open(path)
	if err != nil {
		return nil, fmt.Errorf("gguf: %w", err)
	}
	f.maps = append(f.maps, m)
	part, err := Parse(path, m.Bytes())
	if err != nil {
		return nil, err
	}
	f.Parts = append(f.Parts, part.Parts...)
	return part, nil
}

// Close unmaps the files. It may be called more than once.
func (f *File) Close() error {
	var errs []error
	for _, m := range f.maps {
		errs = append(errs, m.Close())
	}
	f.maps, f.Tensors = nil, nil
	return errors.Join(errs...)
}

// insteadOf describes what a file contains instead of a model, after a failed download.
func insteadOf(data []byte) string {
	begins := func(s string) bool { return bytes.HasPrefix(bytes.ToLower(data[:min(len(data), 64)]), []byte(s)) }
	switch {
	case begins("version https://git-lfs"):
		return ": this is a pointer of Git LFS; download the file itself with 'git lfs pull'"
	case begins("<!doctype") || begins("<html"):
		return ": this is a web page; download the file itself"
	}
	return ""
}

// Parse parses the contents of a file; path is its name in errors. Tensors are slices of data. Duplicate names, ranges
// outside the file, overlapping ranges and unsupported types are errors.
func Parse(path string, data []byte) (*File, error) {
	s := &scanner{path: path, data: data}
	if magic := s.take(4, "the magic number"); s.err == nil && string(magic) != magicNumber {
		s.fail("it begins with %q, but a GGUF file begins with %q%s", magic, magicNumber, insteadOf(data))
	}
	f := &File{Version: s.u32("the version")}
	switch {
	case s.err != nil:
	case f.Version == 2<<24 || f.Version == 3<<24:
		s.refuse(ErrUnsupported, "a big-endian file; only little-endian ones are supported: convert the model again")
	case f.Version < 2 || f.Version > 3:
		s.refuse(ErrUnsupported, "version %d; 2 and 3 are supported: convert the model again", f.Version)
	}
	tensors := s.count("tensors", 8+4+4+8, maxTensors)
	pairs := s.count("metadata pairs", 8+4+1, maxPairs)
	f.Metadata = make(Metadata, pairs)
	for range pairs {
		key := s.text("a key", maxKey)
		v := s.value(s.u32("a value's type"), 0)
		if _, twice := f.Metadata[key]; twice {
			s.fail("metadata key %q occurs twice", key)
		}
		if s.err != nil {
			return nil, s.err
		}
		f.Metadata[key] = v
	}
	list := make([]Tensor, 0, tensors)
	for range tensors {
		list = append(list, s.tensor())
		if s.err != nil {
			return nil, s.err
		}
	}
	if s.err != nil {
		return nil, s.err
	}
	pad := int64(defaultPad)
	if v, ok := f.Metadata["general.alignment"]; ok {
		n, isInt := v.(int64)
		if !isInt || n <= 0 || n > maxAlign || n&(n-1) != 0 {
			s.fail("general.alignment is %v; a power of two up to %d is supported", v, maxAlign)
			return nil, s.err
		}
		pad = n
	}
	if err := s.place(list, pad); err != nil {
		return nil, err
	}
	f.Tensors = list
	if err := checkNames(path, list); err != nil {
		return nil, err
	}
	f.Parts = []Part{{Path: path, Bytes: int64(len(data)), Tensors: len(list)}}
	return f, nil
}

// tensor reads the description of a tensor. Offset is relative to the beginning of the data; place makes it absolute.
func (s *scanner) tensor() Tensor {
	t := Tensor{Name: s.text("a tensor's name", maxKey), File: s.path}
	dims := s.u32("the number of dimensions")
	if s.err == nil && dims > maxDims {
		s.fail("tensor %q has %d dimensions; at most %d are supported", t.Name, dims, maxDims)
		return t
	}
	t.Shape = make([]int, dims)
	for i := range t.Shape {
		n := s.u64("a dimension")
		if n > 1<<48 {
			s.fail("tensor %q has a dimension of %d; want 1 or more", t.Name, n)
			return t
		}
		t.Shape[len(t.Shape)-1-i] = int(n)
	}
	t.Type = Type(s.u32("a tensor's type"))
	offset := s.u64("a tensor's offset")
	if s.err == nil && offset > 1<<62 {
		s.fail("tensor %q begins at byte %d of the data, beyond any file", t.Name, offset)
	}
	t.Offset = int64(offset)
	return t
}

// bytes returns the bytes of a tensor's data.
func (t *Tensor) bytes() (int64, error) {
	values, size, ok := t.Type.unit()
	if !ok {
		return 0, fmt.Errorf("%w: tensor %q is %v; want one of %s: use another file of the model", ErrUnsupported,
			t.Name, t.Type, typeList())
	}
	columns := 1
	if len(t.Shape) > 0 {
		columns = t.Shape[len(t.Shape)-1]
	}
	if columns%values != 0 {
		return 0, fmt.Errorf("%w: tensor %q has rows of %d values, which are not whole blocks of %v with %d "+
			"values", ErrMalformed, t.Name,
			columns, t.Type, values)
	}
	n := uint64(columns/values) * uint64(size) // below 2^56
	for _, d := range t.Shape[:max(0, len(t.Shape)-1)] {
		hi, lo := bits.Mul64(n, uint64(d))
		if hi != 0 || lo > 1<<62 {
			return 0, fmt.Errorf("%w: tensor %q of shape %v is larger than any file", ErrMalformed, t.Name, t.Shape)
		}
		n = lo
	}
	return int64(n), nil
}

// place sets Data and Offset of all tensors. The data begins at the next multiple of pad.
func (s *scanner) place(list []Tensor, pad int64) error {
	start := (int64(s.at) + pad - 1) / pad * pad
	for i := range list {
		t := &list[i]
		n, err := t.bytes()
		if err != nil {
			return fmt.Errorf("gguf: %s: %w", s.path, err)
		}
		size := int64(len(s.data))
		if t.Offset%pad != 0 {
			return fmt.Errorf("gguf: %s: %w: tensor %q begins at byte %d of the data, not at a multiple of %d", s.path,
				ErrMalformed, t.Name, t.Offset, pad)
		}
		if start > size || t.Offset > size-start || n > size-start-t.Offset {
			return fmt.Errorf("gguf: %s: %w: tensor %q takes %d bytes from byte %d of the data, but the file has %d "+
				"bytes with data from byte %d: %s", s.path, ErrMalformed, t.Name, n, t.Offset, size, start, incomplete)
		}
		t.Offset += start
		t.Data = s.data[t.Offset : t.Offset+n : t.Offset+n]
	}
	return s.checkOverlap(list)
}

// checkOverlap returns an error if tensors overlap.
func (s *scanner) checkOverlap(list []Tensor) error {
	order := make([]int, len(list))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(a, b int) int {
		if d := list[a].Offset - list[b].Offset; d != 0 {
			return int(min(max(d, -1), 1))
		}
		return len(list[a].Data) - len(list[b].Data) // empty tensors first
	})
	for i := 1; i < len(order); i++ {
		a, b := &list[order[i-1]], &list[order[i]]
		if a.Offset+int64(len(a.Data)) > b.Offset {
			return fmt.Errorf("gguf: %s: %w: tensors %q and %q share bytes; want separate bytes for "+
				"each", s.path, ErrMalformed, a.Name, b.Name)
		}
	}
	return nil
}

// checkNames returns an error for duplicate names.
func checkNames(path string, list []Tensor) error {
	seen := make(map[string]string, len(list))
	for i := range list {
		if other, twice := seen[list[i].Name]; twice {
			return fmt.Errorf("gguf: %s: %w: tensor %q is in %s and in %s", path, ErrMalformed, list[i].Name, other,
				list[i].File)
		}
		seen[list[i].Name] = list[i].File
	}
	return nil
}

func typeList() string {
	var names []string
	for t := range Type(64) {
		if _, _, ok := t.unit(); ok {
			names = append(names, t.String())
		}
	}
	return strings.Join(names, " ")
}
