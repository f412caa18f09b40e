package gguf

import (
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

// Tensors begin at multiples of the alignment that the file states.
func TestTensorsAreAligned(t *testing.T) {
	for _, c := range []struct {
		pad     uint32
		refused bool
	}{{16, false}, {32, false}, {128, true}} {
		data := fileBytes(t, []Pair{{"general.alignment", c.pad}}, source("a", F32, 8), source("b", F32, 8))
		// The file was written with an alignment of 32; with another alignment its data begins elsewhere.
		data = append(data, make([]byte, 256)...)
		f, err := Parse("x", data)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "multiple of 128") {
			t.Errorf("alignment %d: %+v, %v", c.pad, f, err)
		}
	}
}

// A file is refused if the number of its tensors differs from the number that its metadata states.
func TestSplitsHoldAllTensors(t *testing.T) {
	for said, ok := range map[int32]bool{1: false, 2: true, 3: false} {
		dir := t.TempDir()
		for i := range 2 {
			pairs := []Pair{{"split.no", uint16(i)}, {"split.count", uint16(2)}, {"split.tensors.count", said}}
			if _, err := Create(filepath.Join(dir, "m"+splitSuffix(i, 2)), pairs,
				[]Source{source(string(rune('a'+i)), F32, 2)}); err != nil {
				t.Fatal(err)
			}
		}
		f, err := Open(filepath.Join(dir, "m"+splitSuffix(0, 2)))
		if (err == nil) != ok {
			t.Errorf("2 tensors of %d: %v", said, err)
		}
		if err == nil {
			if err := f.Close(); err != nil {
				t.Error(err)
			}
		}
	}
}

// A value is returned only as its own type, except that a whole number is also a number.
func TestValuesHaveTypes(t *testing.T) {
	m := Metadata{"int": int64(7), "big": uint64(1 << 63), "float": 0.5, "bool": true, "text": "abc",
		"texts": []string{"x"}, "ints": []int64{1, 2}, "floats": []float64{0.25}}
	asked := func(ask func(key string) bool) (list string) {
		for _, key := range m.Keys() {
			if ask(key) {
				list += key + " "
			}
		}
		return strings.TrimSpace(list)
	}
	for want, ask := range map[string]func(key string) bool{
		"int":       func(key string) bool { v, ok := m.Int(key); return ok && v == 7 },
		"float int": func(key string) bool { v, ok := m.Float(key); return ok && (v == 7 || v == 0.5) },
		"bool":      func(key string) bool { v, ok := m.Bool(key); return ok && v },
		"text":      func(key string) bool { v, ok := m.Text(key); return ok && v == "abc" },
		"texts":     func(key string) bool { v, ok := m.Texts(key); return ok && v[0] == "x" },
		"ints":      func(key string) bool { v, ok := m.Ints(key); return ok && v[1] == 2 },
		"floats":    func(key string) bool { v, ok := m.Floats(key); return ok && v[0] == 0.25 },
	} {
		if got := asked(ask); got != want {
			t.Errorf("the values of a type are %q, want %q", got, want)
		}
	}
	for key, want := range map[string]string{"none": "missing", "int": "7", "big": "9223372036854775808",
		"float": "0.5", "bool": "true", "text": "a string of 3 bytes", "ints": "[]int64"} {
		if got := m.Describe(key); got != want {
			t.Errorf("%s is described as %q, want %q", key, got, want)
		}
	}
}

// Alignments, dimensions and numbers of parts have exact limits, and a key occurs once.
func TestLimitsOfAFile(t *testing.T) {
	for _, c := range []struct {
		name, want string
		pairs      []Pair
	}{
		{"an alignment of 0", "power of two", []Pair{{"general.alignment", uint32(0)}}},
		{"a negative alignment", "power of two", []Pair{{"general.alignment", int32(-32)}}},
		{"an alignment of 24", "power of two", []Pair{{"general.alignment", uint32(24)}}},
		{"a large alignment", "power of two", []Pair{{"general.alignment", uint32(2 << 20)}}},
		{"an alignment that is text", "power of two", []Pair{{"general.alignment", "32"}}},
		{"a key twice", "occurs twice", []Pair{{"a", uint32(1)}, {"a", uint32(2)}}},
	} {
		_, err := Parse("x", fileBytes(t, c.pairs))
		if !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
	}
	if _, err := Parse("x", fileBytes(t, []Pair{{"general.alignment", uint32(1 << 20)}})); err != nil {
		t.Error(err)
	}
	path := filepath.Join(t.TempDir(), "m"+splitSuffix(0, 99999))
	if _, err := Create(path, []Pair{{"split.no", uint16(0)}, {"split.count", uint32(100000)}}, nil); err != nil {
		t.Fatal(err)
	}
	if _, err := Open(path); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "at most 99999") {
		t.Errorf("100000 parts: %v", err)
	}
	data := fileBytes(t, nil, source("w", F32, 1, 1, 1, 4))
	if f, err := Parse("x", data); err != nil || len(f.Tensors[0].Shape) != 4 {
		t.Errorf("4 dimensions: %v", err)
	}
	if _, err := Create(path, nil, []Source{source("w", F32, 1, 1, 1, 1, 4)}); err == nil {
		t.Error("a tensor of 5 dimensions was written")
	}
	const dims = 24 + 8 + 1 // position of the number of dimensions after the header, the length and the name
	data[dims] = 5
	if _, err := Parse("x", data); !errors.Is(err, ErrMalformed) || !strings.Contains(err.Error(), "5 dimensions") {
		t.Errorf("5 dimensions: %v", err)
	}
}
