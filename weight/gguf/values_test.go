package gguf

import (
	"strings"
	"testing"
)

// Tensors begin at multiples of the file's own alignment.
func TestTensorsAreAligned(t *testing.T) {
	for _, c := range []struct {
		pad     uint32
		refused bool
	}{{16, false}, {32, false}, {128, true}} {
		data := fileBytes(t, []Pair{{"general.alignment", c.pad}}, source("a", F32, 8), source("b", F32, 8))
		// Written at multiples of 32: the data of another alignment begins elsewhere.
		data = append(data, make([]byte, 256)...)
		f, err := Parse("x", data)
		if (err != nil) != c.refused || err != nil && !strings.Contains(err.Error(), "multiple of 128") {
			t.Errorf("alignment %d: %+v, %v", c.pad, f, err)
		}
	}
}
