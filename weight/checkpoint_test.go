package weight

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"

	"sparrow/internal/block"
	"sparrow/internal/mmap"
)

// writeFiles writes files with the given contents to a new folder and returns the folder.
func writeFiles(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, content := range files {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// tiny returns the contents of a safetensors file with one-byte tensors of the given names, in this order.
func tiny(names ...string) string {
	var tensors []Source
	for i, name := range names {
		tensors = append(tensors, SourceBytes(name, U8, []int{1}, []byte{byte(i)}))
	}
	var b strings.Builder
	if err := Write(&b, tensors, map[string]string{"first": names[0]}); err != nil {
		panic(err)
	}
	return b.String()
}

func TestOpenPicksTheFile(t *testing.T) {
	tests := []struct {
		name  string
		files map[string]string
		want  []string // names of the expected tensors
	}{
		{"model.safetensors before others",
			map[string]string{"golden.safetensors": tiny("g"), "model.safetensors": tiny("m")}, []string{"m"}},
		{"the only file", map[string]string{"weights.safetensors": tiny("w"), "config.json": "{}"}, []string{"w"}},
		{
			"the index before model.safetensors",
			map[string]string{"model.safetensors": tiny("m"), "a.safetensors": tiny("x"),
				IndexName: `{"weight_map":{"x":"a.safetensors"}}`},
			[]string{"x"},
		},
		{
			"what the index names and nothing else",
			map[string]string{"a.safetensors": tiny("z", "x"), "b.safetensors": tiny("y", "x"),
				IndexName: `{"metadata":{"total_size":2,"more":[{}]},"weight_map":{"y":"b.safetensors","x":"b.safetensors","z":"a.safetensors"}}`},
			[]string{"x", "y", "z"},
		},
		{"an index of nothing", map[string]string{IndexName: ` { "weight_map" : { } } `}, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Open(writeFiles(t, tt.files))
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			if got := c.Names(); !slices.Equal(got, tt.want) {
				t.Errorf("tensors %v, want %v", got, tt.want)
			}
		})
	}
}

func TestOpenShardedTakesEachTensorFromItsFile(t *testing.T) {
	dir := writeFiles(t, map[string]string{
		"a.safetensors": tiny("x", "only-a"),
		"b.safetensors": tiny("x"),
		IndexName:       `{"weight_map":{"x":"b.safetensors","only-a":"a.safetensors"}}`,
	})
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	x, ok := c.Tensor("x")
	if !ok || x.File != filepath.Join(dir, "b.safetensors") {
		t.Errorf("x is %+v, want the one of b.safetensors", x)
	}
	content, err := os.ReadFile(x.File)
	if err != nil {
		t.Fatal(err)
	}
	if content[x.Offset] != x.Data[0] || int(x.Offset) != len(content)-1 {
		t.Errorf("x at byte %d of %d", x.Offset, len(content))
	}
	want := []FileInfo{
		{Path: filepath.Join(dir, "a.safetensors"), Bytes: int64(len(tiny("x", "only-a"))), Tensors: 1, Unlisted: 1},
		{Path: filepath.Join(dir, "b.safetensors"), Bytes: int64(len(tiny("x"))), Tensors: 1},
	}
	if diff := cmp.Diff(want, c.Files()); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	if got := c.Bytes(); got != 2 {
		t.Errorf("%d bytes of tensors, want 2", got)
	}
	if got := c.Metadata()["first"]; got != "x" {
		t.Errorf("metadata first is %q", got)
	}
}

func TestOpenRefuses(t *testing.T) {
	a := tiny("x")
	index := func(entries string) string { return `{"weight_map":{` + entries + `}}` }
	tests := []struct {
		name  string
		files map[string]string
		is    error
		want  []string
	}{
		{"an empty folder", nil, ErrNotFound, []string{IndexName, singleName}},
		{"two files without index", map[string]string{"a.safetensors": a, "b.safetensors": a}, ErrNotFound,
			[]string{"2 .safetensors files", "a.safetensors"}},
		{"an index naming a missing file",
			map[string]string{IndexName: index(`"x":"a.safetensors","y":"a.safetensors"`)}, ErrNotFound,
			[]string{`"x"`, `"a.safetensors"`, "1 more", "byte 15"}},
		{"a tensor absent from its file",
			map[string]string{"a.safetensors": a, IndexName: index(`"x":"a.safetensors","y":"a.safetensors"`)},
			ErrNotFound, []string{`"y"`, `"a.safetensors"`, "byte 35"}},
		{"a file above the folder", map[string]string{IndexName: index(`"x":"../a.safetensors"`)}, ErrMalformed,
			[]string{`"../a.safetensors"`, "plain file names"}},
		{"an absolute file", map[string]string{IndexName: index(`"x":"/etc/a.safetensors"`)}, ErrMalformed,
			[]string{"plain file names"}},
		{"a file in a folder below", map[string]string{IndexName: index(`"x":"sub/a.safetensors"`)}, ErrMalformed,
			[]string{"plain file names"}},
		{"a Windows path", map[string]string{IndexName: index(`"x":"..\\a.safetensors"`)}, ErrMalformed,
			[]string{"plain file names"}},
		{"a drive letter", map[string]string{IndexName: index(`"x":"C:a.safetensors"`)}, ErrMalformed,
			[]string{"plain file names"}},
		{"the folder itself", map[string]string{IndexName: index(`"x":".."`)}, ErrMalformed, []string{"names no file"}},
		{"an empty file name", map[string]string{IndexName: index(`"x":""`)}, ErrMalformed, []string{"names no file"}},
		{"a zero byte", map[string]string{IndexName: index(`"x":"a\u0000.safetensors"`)}, ErrMalformed,
			[]string{"zero byte"}},
		{"a file of another kind", map[string]string{IndexName: index(`"x":"a.bin"`)}, ErrMalformed,
			[]string{"does not end in .safetensors"}},
		{"a tensor placed twice", map[string]string{"a.safetensors": a,
			IndexName: index(`"x":"a.safetensors","x":"a.safetensors"`)}, ErrMalformed, []string{`"x"`, "twice"}},
		{"no weight_map", map[string]string{IndexName: `{}`}, ErrMalformed, []string{"no weight_map"}},
		{"two of them", map[string]string{IndexName: `{"weight_map":{},"weight_map":{}}`}, ErrMalformed,
			[]string{"twice"}},
		{"an empty index", map[string]string{IndexName: ``}, ErrMalformed, []string{"the end of the index"}},
		{"text behind the index", map[string]string{IndexName: `{"weight_map":{}}{`}, ErrMalformed, []string{"'{'"}},
		{"an index that is not UTF-8", map[string]string{IndexName: "{\"\xff\":1}"}, ErrMalformed, []string{"UTF-8"}},
		{"a file name that is no string", map[string]string{IndexName: index(`"x":1`)}, ErrMalformed,
			[]string{"a string"}},
		{"a broken shard", map[string]string{"a.safetensors": a[:len(a)-1], IndexName: index(`"x":"a.safetensors"`)},
			ErrMalformed, []string{"a.safetensors", "truncated"}},
		{"a broken file", map[string]string{"model.safetensors": a[:5]}, ErrMalformed,
			[]string{"model.safetensors", "5 bytes"}},
		{"an empty file", map[string]string{"model.safetensors": ""}, ErrMalformed, []string{"0 bytes"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			c, err := Open(writeFiles(t, tt.files))
			if err == nil {
				t.Fatalf("accepted, with tensors %v", c.Names())
			}
			if !errors.Is(err, tt.is) {
				t.Errorf("%v is not %v", err, tt.is)
			}
			for _, part := range tt.want {
				if !strings.Contains(err.Error(), part) {
					t.Errorf("%q does not say %q", err, part)
				}
			}
		})
	}
}

// A truncated file is reported as one problem, however many of its tensors are missing.
func TestATruncatedFileIsOneProblem(t *testing.T) {
	var b bytes.Buffer
	b.WriteString("{")
	for i := range 20 {
		if i > 0 {
			b.WriteString(",")
		}
		fmt.Fprintf(&b, `"t%02d":{"dtype":"U8","shape":[4],"data_offsets":[%d,%d]}`, i, 4*i, 4*i+4)
	}
	b.WriteString("}")
	_, err := Open(writeFiles(t, map[string]string{"model.safetensors": string(fileBytes(b.String(), 10))}))
	if err == nil || strings.Contains(err.Error(), "\n") ||
		!strings.Contains(err.Error(), `tensor "t02": data_offsets [8, 12), and those of 17 more tensors, run past`) {
		t.Errorf("%v", err)
	}
}

func TestOpenReportsTheProblemsOfAllShards(t *testing.T) {
	_, err := Open(writeFiles(t, map[string]string{
		"a.safetensors": "short", "b.safetensors": tiny("other"),
		IndexName: `{"weight_map":{"x":"a.safetensors","y":"b.safetensors","z":"c.safetensors"}}`,
	}))
	for _, part := range []string{"a.safetensors: byte 0: file has 5 bytes", `tensor "y": missing in file "b.safetensors"`,
		`file "c.safetensors" for this`} {
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%v does not say %q", err, part)
		}
	}
}

func TestOpenWrongKindOfPath(t *testing.T) {
	dir := writeFiles(t, map[string]string{"model.safetensors": tiny("x")})
	file := filepath.Join(dir, "model.safetensors")
	if _, err := Open(file); err == nil || !strings.Contains(err.Error(), "OpenFile") {
		t.Errorf("a file as folder: %v", err)
	}
	if _, err := OpenFile(dir); !errors.Is(err, mmap.ErrNotRegular) {
		t.Errorf("a folder as file: %v", err)
	}
	if _, err := Open(filepath.Join(dir, "none")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a folder that is not there: %v", err)
	}
	if _, err := OpenFile(filepath.Join(dir, "none")); !errors.Is(err, ErrNotFound) {
		t.Errorf("a file that is not there: %v", err)
	}
	if err := os.Mkdir(filepath.Join(dir, IndexName), 0o755); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(dir); !errors.Is(err, mmap.ErrNotRegular) {
		t.Errorf("a folder as index: %v", err)
	}
}

// Downloads have links in place of files: an index and its files are read through them.
func TestLinkedFilesAreRead(t *testing.T) {
	blobs := writeFiles(t, map[string]string{"a": tiny("x"), "b": tiny("y"),
		"index": `{"weight_map":{"x":"m1.safetensors","y":"m2.safetensors"}}`})
	dir := t.TempDir()
	for name, blob := range map[string]string{"m1.safetensors": "a", "m2.safetensors": "b", IndexName: "index"} {
		if err := os.Symlink(filepath.Join(blobs, blob), filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	c, err := Open(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if n := len(slices.Collect(c.All())); n != 2 {
		t.Errorf("%d tensors were found", n)
	}
}

func TestAClosedCheckpointHasNoTensors(t *testing.T) {
	c, err := Open(writeFiles(t, map[string]string{"model.safetensors": tiny("x", "y")}))
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	}
	if _, ok := c.Tensor("y"); ok || len(c.Names()) != 0 {
		t.Error("a closed checkpoint still has tensors")
	}
	if _, err := c.Matrix("y"); !errors.Is(err, ErrClosed) {
		t.Errorf("matrix after close: %v", err)
	}

	embedded, err := FromBytes("embedded", []byte(tiny("x")))
	if err != nil {
		t.Fatal(err)
	}
	if err := embedded.Close(); err != nil {
		t.Error(err)
	}
}

func TestCheckpointIsReadByManyGoroutines(t *testing.T) {
	c, err := Open(writeFiles(t, map[string]string{"model.safetensors": tiny("x", "y")}))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for range 100 {
				for i, name := range c.Names() {
					if x, ok := c.Tensor(name); !ok || x.Data[0] != byte(i) {
						t.Errorf("tensor %q is %+v", name, x)
					}
				}
				c.Metadata()["first"] = "changed"
			}
		})
	}
	wg.Wait()
	if got := c.Metadata()["first"]; got != "x" {
		t.Errorf("a caller changed the metadata to %q", got)
	}
}

// A random tensor of a block format has the bytes of its whole blocks; a shape whose rows end inside a block is
// refused.
func TestBytesOfDrawnBlocks(t *testing.T) {
	shape := func(columns int) (*Checkpoint, error) {
		return FromShapes("drawn", []Tensor{{Name: "a.weight", DType: Blocks(block.Q2_K), Shape: []int{3, columns},
			Drawn: &Distribution{Spread: 1}}})
	}
	c, err := shape(512)
	if err != nil || c.Bytes() != 3*2*84 {
		t.Fatalf("%d bytes, want %d; %v", c.Bytes(), 3*2*84, err)
	}
	if m, err := c.Matrix("a.weight"); err != nil || m.Rows != 3 || m.Cols != 512 || m.RowBytes != 2*84 {
		t.Errorf("%+v, %v", m, err)
	}
	if _, err := shape(500); !errors.Is(err, ErrMalformed) {
		t.Errorf("rows of 500 values: %v", err)
	}
}
