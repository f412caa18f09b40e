package usage

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"sparrow/internal/textfile"
)

// ErrFile is wrapped if a file is not a usage file.
var ErrFile = errors.New("not a usage file")

// Values of the fields format and version of a file.
const (
	formatName    = "sparrow expert usage"
	formatVersion = 1
)

// Limits of the numbers in a file: several times those of the largest known model.
const (
	mostBytes   = 64 << 20
	mostLayers  = 4096
	mostExperts = 65536
)

type file struct {
	Format  string      `json:"format"`
	Version int         `json:"version"`
	Family  string      `json:"family"`
	Layers  int         `json:"layers"`
	Experts int         `json:"experts"`
	Chosen  int         `json:"chosen"`
	Counts  []fileLayer `json:"counts"`
}

type fileLayer struct {
	Layer  int      `json:"layer"`
	Counts []uint64 `json:"counts"`
}

// Load reads a file.
func Load(path string) (*Table, error) {
	f, err := textfile.Open(path)
	if err != nil {
		return nil, fmt.Errorf("usage: %w", err)
	}
	defer f.Close()
	t, err := Read(f)
	if err != nil {
		return nil, fmt.Errorf("usage: %s: %w", path, err)
	}
	return t, nil
}

// Read reads a table in the format of Write.
func Read(r io.Reader) (*Table, error) {
	data, err := io.ReadAll(io.LimitReader(r, mostBytes+1))
	if err != nil {
		return nil, err
	}
	if len(data) > mostBytes {
		return nil, fmt.Errorf("%w: it has more than %d bytes", ErrFile, mostBytes)
	}
	var f file
	d := json.NewDecoder(bytes.NewReader(data))
	d.DisallowUnknownFields()
	if err := d.Decode(&f); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrFile, err)
	}
	if d.More() {
		return nil, fmt.Errorf("%w: text follows the JSON object; want a single object", ErrFile)
	}
	return f.table()
}

// table checks a file's contents and returns them as a Table.
func (f *file) table() (*Table, error) {
	bad := func(format string, args ...any) (*Table, error) {
		return nil, fmt.Errorf("%w: %s", ErrFile, fmt.Sprintf(format, args...))
	}
	switch {
	case f.Format != formatName:
		return bad("format is %q, want %q", f.Format, formatName)
	case f.Version != formatVersion:
		return bad("the version is %d, want %d", f.Version, formatVersion)
	case f.Layers < 1 || f.Layers > mostLayers || f.Experts < 1 || f.Experts > mostExperts || f.Chosen < 1 ||
		f.Chosen > f.Experts:
		return bad("the file has %d of %d experts in %d layers, want at most %d experts and %d layers", f.Chosen,
			f.Experts, f.Layers, mostExperts, mostLayers)
	}
	t := New(f.Family, f.Layers, f.Experts, f.Chosen)
	for _, l := range f.Counts {
		switch {
		case l.Layer < 0 || l.Layer >= f.Layers:
			return bad("there are counts of layer %d, but the file has %d layers", l.Layer, f.Layers)
		case t.Counts[l.Layer] != nil:
			return bad("the counts of layer %d occur twice; want each layer once", l.Layer)
		case len(l.Counts) != f.Experts:
			return bad("there are %d counts of layer %d, want one for each of %d "+
				"experts", len(l.Counts), l.Layer, f.Experts)
		}
		t.Add(l.Layer, l.Counts)
	}
	return t, nil
}

// Write writes the table as JSON.
func (t *Table) Write(w io.Writer) error {
	f := file{Format: formatName, Version: formatVersion, Family: t.Family, Layers: len(t.Counts), Experts: t.Experts,
		Chosen: t.Chosen, Counts: []fileLayer{}}
	for l, counts := range t.Counts {
		if len(counts) > 0 {
			f.Counts = append(f.Counts, fileLayer{l, counts})
		}
	}
	return json.NewEncoder(w).Encode(f)
}

// Save replaces a file atomically.
func (t *Table) Save(path string) error {
	if err := textfile.Replace(path, t.Write); err != nil {
		return fmt.Errorf("usage: %w", err)
	}
	return nil
}
