package gguf

import (
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
