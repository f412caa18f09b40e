package gguf_test

import (
	"math"
	"path/filepath"
	"testing"

	"sparrow/internal/block"
	"sparrow/internal/testkit/archive"
	"sparrow/weight"
)

// Blocks of every type are decoded to the values of the format's own package, bit for bit.
func TestGoldenBlocks(t *testing.T) {
	dir := filepath.Join(archive.Unpack(t, "../../testdata/oracle/formats-1.tar.gz"), "formats-1", "gguf")
	open := func(name string) *weight.Checkpoint {
		c, err := weight.OpenFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	stored, values := open("blocks.stored.safetensors"), open("blocks.values.safetensors")
	for _, f := range block.Formats() {
		name := f.String()
		from, ok := stored.Tensor(name)
		to, both := values.Tensor(name)
		if !ok || !both {
			t.Errorf("%v: no golden blocks", f)
			continue
		}
		want, err := weight.ReadF32(to)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]float32, len(from.Data)/f.Bytes()*f.Values())
		if len(got) != len(want) || len(got) == 0 {
			t.Fatalf("%v: blocks of %d values, golden values are %d", f, len(got), len(want))
		}
		f.Decode(got, from.Data)
		for i := range got {
			if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
				t.Errorf("%v: value %d is %g (%08x), want %g (%08x)", f, i, got[i], math.Float32bits(got[i]), want[i],
					math.Float32bits(want[i]))
				break
			}
		}
	}
	if n := len(stored.Names()); n != len(block.Formats()) {
		t.Errorf("%d types are golden, %d formats are read", n, len(block.Formats()))
	}
}
