package weight

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// The expected bytes are computed by hand: the header text has 135 characters, 49 spaces make 8 + 184 = 192 = 3 * 64,
// and the tensor of 8 bytes precedes the tensor of 3 bytes although its name sorts later.
func TestWriteGolden(t *testing.T) {
	var b bytes.Buffer
	err := Write(&b, []Source{
		SourceBytes("a", U8, []int{3}, []byte{1, 2, 3}),
		SourceBytes("b", BF16, []int{2, 2}, []byte{4, 5, 6, 7, 8, 9, 10, 11}),
	}, map[string]string{"k": "v"})
	if err != nil {
		t.Fatal(err)
	}
	text :=
		`{"__metadata__":{"k":"v"},"b":{"dtype":"BF16","shape":[2,2],"data_offsets":[0,8]},"a":{"dtype":"U8","shape":[3],"data_offsets":[8,11]}}`
	want := append([]byte{184, 0, 0, 0, 0, 0, 0, 0}, text+strings.Repeat(" ", 49)...)
	want = append(want, 4, 5, 6, 7, 8, 9, 10, 11, 1, 2, 3)
	if diff := cmp.Diff(want, b.Bytes()); diff != "" {
		t.Errorf("file (-want +got):\n%s", diff)
	}
}

// drawTensors returns random tensors with distinct names, and their contents by name.
func drawTensors(t *rapid.T) ([]Source, map[string][]byte) {
	var tensors []Source
	content := make(map[string][]byte)
	names := rapid.SliceOfNDistinct(rapid.String().Filter(func(s string) bool { return s != metadataKey }), 0, 12,
		rapid.ID).Draw(t, "names")
	for i, name := range names {
		d := DType(rapid.IntRange(1, len(dtypes)-1).Draw(t, fmt.Sprintf("dtype%d", i)))
		shape := rapid.SliceOfN(rapid.IntRange(0, 9), 0, 3).Draw(t, fmt.Sprintf("shape%d", i))
		if d == F4E2M1x2 {
			shape = append(shape, 2)
		}
		n, _ := dataBytes(d, shape)
		data := make([]byte, n)
		for j := range data {
			data[j] = byte(i*31 + j)
		}
		tensors = append(tensors, SourceBytes(name, d, shape, data))
		content[name] = data
	}
	return tensors, content
}

// checkContent checks that an open checkpoint has the given tensors and contents.
func checkContent(t *rapid.T, c *Checkpoint, tensors []Source, content map[string][]byte) {
	if len(c.Names()) != len(tensors) {
		t.Fatalf("%d tensors, want %d", len(c.Names()), len(tensors))
	}
	for _, s := range tensors {
		got, ok := c.Tensor(s.Name)
		if !ok {
			t.Fatalf("tensor %q is lost", s.Name)
		}
		if got.DType != s.DType || !slices.Equal(got.Shape, s.Shape) || !bytes.Equal(got.Data, content[s.Name]) {
			t.Fatalf("tensor %q came back as %+v", s.Name, got)
		}
		if align := int64(alignment(s)); got.Offset%align != 0 || int(align) < s.DType.Size() && len(got.Data) > 0 {
			t.Fatalf("tensor %q of %d bytes of %s lies at byte %d, alignment %d", s.Name, len(got.Data), s.DType,
				got.Offset, align)
		}
	}
}

func TestWriteThenReadGivesTheSameTensors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tensors, content := drawTensors(t)
		metadata := rapid.MapOfN(rapid.String(), rapid.String(), 0, 3).Draw(t, "metadata")
		var b bytes.Buffer
		if err := Write(&b, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		c, err := FromBytes("memory", b.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		checkContent(t, c, tensors, content)
		if diff := cmp.Diff(metadata, c.Metadata()); diff != "" {
			t.Fatalf("metadata (-want +got):\n%s", diff)
		}
		slices.Reverse(tensors)
		var again bytes.Buffer
		if err := Write(&again, tensors, metadata); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(b.Bytes(), again.Bytes()) {
			t.Fatal("the file depends on the order of the tensors")
		}
	})
}

func TestCreateShardedThenOpenGivesTheSameTensors(t *testing.T) {
	parent := t.TempDir()
	run := 0
	rapid.Check(t, func(t *rapid.T) {
		tensors, content := drawTensors(t)
		maxBytes := int64(rapid.IntRange(0, 200).Draw(t, "maxBytes"))
		run++
		dir := filepath.Join(parent, fmt.Sprint(run))
		if err := CreateSharded(dir, tensors, nil, maxBytes); err != nil {
			t.Fatal(err)
		}
		c, err := Open(dir)
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		checkContent(t, c, tensors, content)
		for _, f := range c.Files() {
			one, err := OpenFile(f.Path)
			if err != nil {
				t.Fatal(err)
			}
			if maxBytes > 0 && one.Bytes() > maxBytes && len(one.Names()) > 1 {
				t.Fatalf("%s holds %d tensors of %d bytes, the limit is %d", f.Path, len(one.Names()), one.Bytes(),
					maxBytes)
			}
			if f.Unlisted != 0 {
				t.Fatalf("%s holds tensors that are not in the index", f.Path)
			}
			one.Close()
		}
	})
}

func TestCreateShardedNamesFilesAndIndex(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "new", "folder")
	tensors := []Source{described("c", U8, 30), described("a", U8, 6), described("b", U8, 4), described("d", U8, 1)}
	if err := CreateSharded(dir, tensors, nil, 10); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, IndexName))
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	want := map[string]any{
		"metadata": map[string]any{"total_size": 41.0},
		"weight_map": map[string]any{
			"a": "model-00001-of-00003.safetensors", "b": "model-00001-of-00003.safetensors",
			"c": "model-00002-of-00003.safetensors", "d": "model-00003-of-00003.safetensors",
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("index (-want +got):\n%s", diff)
	}
	if err := CreateSharded(dir, tensors, nil, 0); !errors.Is(err, ErrExists) ||
		!strings.Contains(err.Error(), IndexName) {
		t.Errorf("writing over a checkpoint: %v", err)
	}
}

func TestWriteRefuses(t *testing.T) {
	fill := func(n int) func(io.Writer) error {
		return func(w io.Writer) error { _, err := w.Write(make([]byte, n)); return err }
	}
	broken := errors.New("broken source")
	var huge []Source // five tensors of just under 2^61 bytes each
	for i := range 5 {
		huge = append(huge, Source{Name: fmt.Sprint(i), DType: U8, Shape: []int{1<<61 - 1}, Fill: fill(1)})
	}
	tests := []struct {
		name     string
		tensors  []Source
		metadata map[string]string
		is       error
		want     string
	}{
		{"no dtype", []Source{{Name: "x", Shape: []int{1}, Fill: fill(1)}}, nil, ErrSource, "invalid"},
		{"a negative dimension", []Source{{Name: "x", DType: U8, Shape: []int{-1}, Fill: fill(1)}}, nil, ErrSource,
			"[-1]"},
		{"half a byte", []Source{{Name: "x", DType: F4E2M1x2, Shape: []int{3}, Fill: fill(1)}}, nil, ErrSource, "[3]"},
		{"more elements than can be counted", []Source{{Name: "x", DType: U8, Shape: []int{1 << 62, 4}, Fill: fill(1)}},
			nil, ErrSource, "whole number"},
		{"a total that overflows", huge, nil, ErrSource, "too large"},
		{"the same name twice", []Source{described("x", U8, 1), described("x", U8, 1)}, nil, ErrSource, "twice"},
		{"the reserved name", []Source{described("__metadata__", U8, 1)}, nil, ErrSource, "reserved"},
		{"a name that is not UTF-8", []Source{described("\xff", U8, 1)}, nil, ErrSource, "UTF-8"},
		{"metadata that is not UTF-8", nil, map[string]string{"k": "\xff"}, ErrSource, "UTF-8"},
		{"no content", []Source{{Name: "x", DType: U8, Shape: []int{1}}}, nil, ErrSource, "no Fill"},
		{"too few bytes", []Source{{Name: "x", DType: U8, Shape: []int{3}, Fill: fill(2)}}, nil, ErrSource,
			"2 of its 3 bytes"},
		{"too many bytes", []Source{{Name: "x", DType: U8, Shape: []int{3}, Fill: fill(4)}}, nil, ErrSource,
			"1 bytes more"},
		{"a source that fails",
			[]Source{{Name: "x", DType: U8, Shape: []int{3}, Fill: func(io.Writer) error { return broken }}}, nil,
			broken, `"x"`},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			err := Write(io.Discard, tt.tensors, tt.metadata)
			if !errors.Is(err, tt.is) || !strings.Contains(err.Error(), tt.want) {
				t.Errorf("Write: %v; want %v saying %q", err, tt.is, tt.want)
			}
			dir := t.TempDir()
			err = CreateSharded(dir, append(tt.tensors, described("first", U8, 5)), tt.metadata, 1)
			if !errors.Is(err, tt.is) {
				t.Errorf("CreateSharded: %v; want %v", err, tt.is)
			}
			if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("a failed run leaves %v", left)
			}
		})
	}
	if err := CreateSharded(t.TempDir(), nil, nil, -1); !errors.Is(err, ErrSource) {
		t.Errorf("a negative shard size: %v", err)
	}
}

// failAfter is a writer that fails after some bytes, like a full disk.
type failAfter struct{ left int }

func (f *failAfter) Write(p []byte) (int, error) {
	if len(p) > f.left {
		return 0, io.ErrShortWrite
	}
	f.left -= len(p)
	return len(p), nil
}

func TestWriteReportsAFullDisk(t *testing.T) {
	big := Source{Name: "x", DType: U8, Shape: []int{8 << 20}, Fill: func(w io.Writer) error {
		for range 8 {
			if _, err := w.Write(make([]byte, 1<<20)); err != nil {
				return err
			}
		}
		return nil
	}}
	for _, limit := range []int{0, 1 << 20, 8 << 20} {
		if err := Write(&failAfter{left: limit}, []Source{big}, nil); !errors.Is(err, io.ErrShortWrite) {
			t.Errorf("with space for %d bytes: %v", limit, err)
		}
	}
	if err := Create(filepath.Join(t.TempDir(), "no", "folder.safetensors"), nil, nil); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("in a folder that is not there: %v", err)
	}
}
