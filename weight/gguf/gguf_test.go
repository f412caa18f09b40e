package gguf

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"sparrow/internal/block"
)

// source returns a tensor whose bytes count up from 1.
func source(name string, t Type, shape ...int) Source {
	return Source{Name: name, Type: t, Shape: shape, Write: func(w io.Writer) error {
		n, err := (&Tensor{Name: name, Type: t, Shape: shape}).bytes()
		if err != nil {
			return err
		}
		b := make([]byte, n)
		for i := range b {
			b[i] = byte(i + 1)
		}
		_, err = w.Write(b)
		return err
	}}
}

func fileBytes(t testing.TB, pairs []Pair, tensors ...Source) []byte {
	t.Helper()
	path := filepath.Join(t.TempDir(), "x.gguf")
	if _, err := Create(path, pairs, tensors); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

var allPairs = []Pair{
	{"a.u8", uint8(200)}, {"a.i8", int8(-3)}, {"a.u16", uint16(60000)}, {"a.i16", int16(-300)},
	{"a.u32", uint32(4e9)}, {"a.i32", int32(-70000)}, {"a.u64", uint64(math.MaxUint64)}, {"a.i64", int64(-1 << 60)},
	{"a.f32", float32(0.5)}, {"a.f64", 0.1}, {"a.bool", true}, {"a.text", "häuser\x00"},
	{"a.texts", []string{"", "b"}}, {"a.ints", []int32{-1, 2}}, {"a.floats", []float32{0.25}},
	{"a.bools", []bool{true, false}}, {"a.bytes", []uint8{7, 255}},
}

func TestWrittenFilesAreRead(t *testing.T) {
	data := fileBytes(t, allPairs, source("w", 12, 3, 512), source("norm", F32, 5), source("e", 8, 2, 3, 64),
		source("none", F16, 0, 7))
	f, err := Parse("x.gguf", data)
	if err != nil {
		t.Fatal(err)
	}
	want := Metadata{"a.u8": int64(200), "a.i8": int64(-3), "a.u16": int64(60000), "a.i16": int64(-300),
		"a.u32": int64(4e9), "a.i32": int64(-70000), "a.u64": uint64(math.MaxUint64), "a.i64": int64(-1 << 60),
		"a.f32": 0.5, "a.f64": 0.1, "a.bool": true, "a.text": "häuser\x00", "a.texts": []string{"", "b"},
		"a.ints": []int64{-1, 2}, "a.floats": []float64{0.25}, "a.bools": []bool{true, false},
		"a.bytes": []int64{7, 255}}
	if !reflect.DeepEqual(f.Metadata, want) {
		t.Errorf("metadata %v\nwant %v", f.Metadata, want)
	}
	for i, bytes := range []int{3 * 2 * 144, 20, 6 * 2 * 34, 0} {
		x := f.Tensors[i]
		if len(x.Data) != bytes || x.Offset%32 != 0 || bytes > 0 && (x.Data[0] != 1 || x.Data[bytes-1] != byte(bytes)) {
			t.Errorf("tensor %s: %d bytes at %d, want %d", x.Name, len(x.Data), x.Offset, bytes)
		}
	}
	if s := f.Tensors[2].Shape; !reflect.DeepEqual(s, []int{2, 3, 64}) {
		t.Errorf("shape %v", s)
	}
}

func TestSplitsAreJoined(t *testing.T) {
	dir := t.TempDir()
	name := func(i int) string { return filepath.Join(dir, "m"+splitSuffix(i, 3)) }
	write := func(i int, pairs []Pair, s ...Source) {
		t.Helper()
		if _, err := Create(name(i), pairs, s); err != nil {
			t.Fatal(err)
		}
	}
	split := func(i int, more ...Pair) []Pair {
		return append([]Pair{{"split.no", uint16(i)}, {"split.count", uint16(3)}, {"split.tensors.count", int32(2)}},
			more...)
	}
	write(0, split(0, Pair{"general.architecture", "glm-dsa"}))
	write(1, split(1), source("a", F32, 2))
	write(2, split(2), source("b", 8, 32))
	for i := range 3 { // any part of the model may be named
		f, err := Open(name(i))
		if err != nil {
			t.Fatal(err)
		}
		if text, _ := f.Metadata.Text("general.architecture"); len(f.Tensors) != 2 || f.Tensors[1].Name != "b" ||
			len(f.Parts) != 3 || f.Parts[2].Path != name(2) || text != "glm-dsa" {
			t.Errorf("split %d: %d tensors, parts %v, architecture %q", i, len(f.Tensors), f.Parts, text)
		}
		if err := f.Close(); err != nil {
			t.Error(err)
		}
	}
	write(2, split(1), source("b", 8, 32))
	if _, err := Open(name(0)); err == nil || !strings.Contains(err.Error(), "its metadata has split 2 of 3") {
		t.Errorf("a wrong split: %v", err)
	}
	write(2, split(2), source("a", F32, 2))
	if _, err := Open(name(0)); err == nil || !strings.Contains(err.Error(), `tensor "a" is in`) {
		t.Errorf("a tensor in two splits: %v", err)
	}
	if err := os.Remove(name(2)); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(name(0)); !errors.Is(err, os.ErrNotExist) ||
		!strings.Contains(err.Error(), "part 3 of 3 is missing: "+name(2)) {
		t.Errorf("a missing split: %v", err)
	}
	if err := os.Rename(name(0), filepath.Join(dir, "renamed.gguf")); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(filepath.Join(dir, "renamed.gguf")); err == nil ||
		!strings.Contains(err.Error(), "must end in -00001-of-00003.gguf") {
		t.Errorf("a renamed split: %v", err)
	}
}

// Every hostile file is refused with a reason, and refusing it takes little memory and time.
func TestHostileFilesAreRefused(t *testing.T) {
	good := fileBytes(t, []Pair{{"k", uint32(1)}}, source("w", F32, 4, 4))
	put := func(at int, v uint64) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint64(b[at:], v)
		return b
	}
	// Sizes in bytes: magic 4, version 4, tensors 8, pairs 8; pair "k": length 8, text 1, type 4, value 4; tensor "w":
	// length 8, text 1, number of dimensions 4, two dimensions of 8, type 4, offset 8.
	const pair, tensor = 24, 24 + 8 + 1 + 4 + 4
	typeAt, offsetAt := tensor+8+1+4+16, tensor+8+1+4+16+4
	withType := func(v uint32) []byte {
		b := bytes.Clone(good)
		binary.LittleEndian.PutUint32(b[typeAt:], v)
		return b
	}
	wide := bytes.Clone(good)
	copy(wide[tensor+13:], bytes.Repeat([]byte{0, 0, 0, 0, 0, 0, 1, 0}, 2)) // 2^48 x 2^48
	nested := append(bytes.Clone(good[:pair+9]), 9, 0, 0, 0)
	for range 100 {
		nested = binary.LittleEndian.AppendUint64(append(nested, 9, 0, 0, 0), 1)
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"empty":              {nil, "the file has only 0 more: the download may be incomplete"},
		"metadata cut off":   {good[:30], "the file has only 14 more bytes: the download may be incomplete"},
		"key cut off":        {good[:pair+12], "the download may be incomplete"},
		"a pointer":          {[]byte("version https://git-lfs.github.com/spec/v1\n"), "download the file itself with"},
		"a web page":         {[]byte("<!DOCTYPE html><html>"), "this is a web page; download the file itself"},
		"another file":       {[]byte("{\"a\": 1}"), `a GGUF file begins with "GGUF"`},
		"2^63 tensors":       {put(8, 1<<63), "tensors; at most"},
		"many tensors":       {put(8, 1<<19), "need at least 24 bytes each"},
		"2^63 pairs":         {put(16, 1<<63), "metadata pairs; at most"},
		"long key":           {put(pair, 1<<63), "a key has"},
		"long name":          {put(tensor, 1<<62), "a tensor's name has"},
		"2^63 columns":       {put(tensor+13, 1<<63), "a dimension of"},
		"overflowing shape":  {wide, "larger than any file"},
		"partial blocks":     {withType(12), "rows of 4 values, which are not whole blocks of Q4_K with 256 values"},
		"offset of 2^63":     {put(offsetAt, 1<<63), "begins at byte"},
		"offset outside":     {put(offsetAt, 1<<20), "the download may be incomplete"},
		"unaligned offset":   {put(offsetAt, 1), "not at a multiple of 32"},
		"cut off":            {good[:len(good)-16], "the download may be incomplete"},
		"arrays in arrays":   {nested, "nested deeper"},
		"unknown value type": {put(pair+9, 13), "value type is 13"},
	} {
		if _, err := Parse(name, c.data); err == nil || !strings.Contains(err.Error(), c.want) ||
			!errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for name, c := range map[string]struct {
		data []byte
		want string
	}{
		"version 1":        {append([]byte("GGUF\x01\x00\x00\x00"), good[8:]...), "version 1; 2 and 3"},
		"big endian":       {append([]byte("GGUF\x00\x00\x00\x03"), good[8:]...), "big-endian"},
		"unknown type":     {withType(77), `tensor "w" is type 77`},
		"unsupported type": {withType(15), `tensor "w" is Q8_K; want one of F32 F16 Q4_0`},
		"foreign type":     {withType(155), `tensor "w" is type 155, made for ik_llama.cpp; want one of`},
	} {
		if _, err := Parse(name, c.data); err == nil || !strings.Contains(err.Error(), c.want) ||
			!errors.Is(err, ErrUnsupported) || errors.Is(err, ErrMalformed) {
			t.Errorf("%s: error %v, want %q", name, err, c.want)
		}
	}
	for at := range good { // every prefix of the file is refused
		if _, err := Parse("prefix", good[:at]); err == nil {
			t.Fatalf("a file cut off at byte %d of %d was accepted", at, len(good))
		}
	}
}

// The table in docs/gguf.md lists the same types as the error messages.
func TestDocumentListsTheTypes(t *testing.T) {
	text, err := os.ReadFile("../../docs/gguf.md")
	if err != nil {
		t.Fatal(err)
	}
	row := regexp.MustCompile(`(?m)^\| types \| ([^;]*);`).FindSubmatch(text)
	if row == nil {
		t.Fatal("no row of types")
	}
	documented := regexp.MustCompile(`[A-Z][A-Z0-9_]+`).FindAllString(string(row[1]), -1)
	supported := strings.Fields(typeList())
	slices.Sort(documented)
	slices.Sort(supported)
	if !slices.Equal(documented, supported) {
		t.Errorf("documented %v, supported %v", documented, supported)
	}
}

func TestNames(t *testing.T) {
	for name, want := range map[string]string{
		"bi.gguf": "bi", "bi-00002-of-00003.gguf": "bi", "V3.2-Q4-00001-of-00009.GGUF": "V3.2-Q4",
		"a-1-of-3.gguf": "a-1-of-3", "-00001-of-00002.gguf": "-00001-of-00002",
	} {
		if got := Stem(name); got != want {
			t.Errorf("%s: %q, want %q", name, got, want)
		}
	}
	path := filepath.Join(t.TempDir(), "x.bin")
	if err := os.WriteFile(path, fileBytes(t, nil, source("w", F32, 4)), 0o644); err != nil {
		t.Fatal(err)
	}
	if !Begins(path) || Begins("gguf_test.go") || Begins(t.TempDir()) || Begins(path+"x") {
		t.Error("the first bytes decide what a GGUF file is")
	}
}

func TestTensorsMustNotOverlap(t *testing.T) {
	data := fileBytes(t, nil, source("a", F32, 16), source("b", F32, 16))
	at := bytes.LastIndex(data[:200], []byte("b")) + 1 + 4 + 8 + 4
	binary.LittleEndian.PutUint64(data[at:], 32)
	if _, err := Parse("x", data); err == nil || !strings.Contains(err.Error(), "share bytes") {
		t.Errorf("got %v", err)
	}
}

// Tensors without values take no bytes: they may begin where another tensor begins or ends, in any order.
func TestEmptyTensorsShareNoBytes(t *testing.T) {
	full, none := source("all values", F32, 16), func(name string) Source { return source(name, F32, 0, 16) }
	for _, list := range [][]Source{
		{none("no values 1"), full}, {full, none("no values 1")},
		{none("no values 1"), none("no values 2"), full, none("no values 3")},
	} {
		data := fileBytes(t, nil, list...)
		f, err := Parse("x", data)
		if err != nil || len(f.Tensors) != len(list) {
			t.Fatalf("%d tensors: %v", len(list), err)
		}
		// The same tensors, all at the beginning of the data.
		for i := range list {
			at := bytes.Index(data, []byte(list[i].Name)) + len(list[i].Name) + 4 + 8*len(list[i].Shape) + 4
			binary.LittleEndian.PutUint64(data[at:], 0)
		}
		if _, err := Parse("x", data); err != nil {
			t.Errorf("%d tensors at one offset: %v", len(list), err)
		}
	}
}

// Files of every block type are refused if rows are not whole blocks, if bytes are missing, or if tensors overlap.
func TestHostileFilesOfEveryType(t *testing.T) {
	for _, f := range block.Formats() {
		kind, columns := TypeOf(f), f.Values()
		const (
			columnsAt = 4 + 4 + 8 + 8 + 8 + 1 + 4 // offset of the number of columns of the first tensor
			rowsAt    = columnsAt + 8
			offsetAt  = rowsAt + 8 + 4
			next      = 8 + 1 + 4 + 8 + 8 + 4 + 8 // distance to the same field of the second tensor
		)
		edit := func(numbers ...uint64) []byte { // numbers holds offsets and values in turn
			data := fileBytes(t, nil, source("w", kind, 2, columns), source("v", kind, 2, columns))
			for i := 0; i < len(numbers); i += 2 {
				binary.LittleEndian.PutUint64(data[numbers[i]:], numbers[i+1])
			}
			return data
		}
		whole := edit()
		if _, err := Parse("x", whole); err != nil {
			t.Fatalf("%v: %v", f, err)
		}
		for want, data := range map[string][]byte{
			"not whole blocks of":            edit(columnsAt, uint64(columns+1)),
			"the download may be incomplete": edit(rowsAt, 1<<20),
			"larger than any file":           edit(columnsAt, uint64(columns)<<30, rowsAt, 1<<48),
			"begins at byte":                 edit(offsetAt, 1<<63),
			"share bytes":                    edit(offsetAt+next, 0),
			"incomplete":                     whole[:len(whole)-32],
		} {
			_, err := Parse("x", data)
			if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), want) {
				t.Errorf("%v: %v, want %q", f, err, want)
			}
		}
	}
}

func TestInterruptedWritesLeaveNothing(t *testing.T) {
	path := filepath.Join(t.TempDir(), "x.gguf")
	failing := Source{Name: "w", Type: F32, Shape: []int{1}, Write: func(io.Writer) error { return io.ErrClosedPipe }}
	if _, err := Create(path, nil, []Source{failing}); !errors.Is(err, io.ErrClosedPipe) {
		t.Errorf("got %v", err)
	}
	short := Source{Name: "w", Type: F32, Shape: []int{1}, Write: func(io.Writer) error { return nil }}
	_, err := Create(path, nil, []Source{short})
	if err == nil || !strings.Contains(err.Error(), "0 bytes were written") {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(path + "*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// In an accepted file the tensors lie inside the file and do not overlap. Any other file gives an error, never a panic.
func FuzzParse(f *testing.F) {
	f.Add(fileBytes(f, allPairs, source("w", 12, 1, 256), source("n", F32, 3)))
	f.Add(fileBytes(f, []Pair{{"general.alignment", uint32(64)}}, source("w", 39, 2, 32)))
	for _, format := range block.Formats() {
		f.Add(fileBytes(f, nil, source("w", TypeOf(format), 1, format.Values())))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		file, err := Parse("fuzz", data)
		if err != nil {
			if !errors.Is(err, ErrMalformed) && !errors.Is(err, ErrUnsupported) {
				t.Fatalf("an error of another kind: %v", err)
			}
			return
		}
		covered := make([]bool, len(data))
		for _, x := range file.Tensors {
			if n, err := x.bytes(); err != nil || int64(len(x.Data)) != n {
				t.Fatalf("tensor %q has %d bytes, want %d (%v)", x.Name, len(x.Data), n, err)
			}
			if format, ok := x.Type.Block(); ok && len(x.Data) > 0 { // any bytes of a block can be decoded
				format.Decode(make([]float32, len(x.Data)/format.Bytes()*format.Values()), x.Data)
			}
			for i := range x.Data {
				if covered[int(x.Offset)+i] {
					t.Fatalf("tensor %q overlaps another", x.Name)
				}
				covered[int(x.Offset)+i] = true
			}
		}
	})
}
