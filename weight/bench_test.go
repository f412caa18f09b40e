package weight

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"
)

// manyTensors returns as many tensors as DeepSeek-V3.2 has, with names of similar length and one byte each.
func manyTensors() []Source {
	var tensors []Source
	one := func(w io.Writer) error { _, err := w.Write([]byte{1}); return err }
	for i := range 92_425 {
		name := fmt.Sprintf("model.layers.%d.mlp.experts.%d.%s", i/1536, i%1536/6, [...]string{
			"gate_proj.weight", "gate_proj.weight_scale_inv", "up_proj.weight", "up_proj.weight_scale_inv",
			"down_proj.weight", "down_proj.weight_scale_inv",
		}[i%6])
		tensors = append(tensors, Source{Name: name, DType: F8E4M3, Shape: []int{1, 1}, Fill: one})
	}
	return tensors
}

// BenchmarkOpen92425Tensors opens a file with as many tensors as DeepSeek-V3.2 has; the goal is less than 300 ms.
func BenchmarkOpen92425Tensors(b *testing.B) {
	var file bytes.Buffer
	if err := Write(&file, manyTensors(), nil); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(file.Len()))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := FromBytes("memory", file.Bytes()); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkOpen163Shards opens the same tensors in 163 files with an index, as they are published.
func BenchmarkOpen163Shards(b *testing.B) {
	dir := b.TempDir()
	if err := CreateSharded(dir, manyTensors(), nil, 568); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		c, err := Open(dir)
		if err != nil {
			b.Fatal(err)
		}
		if len(c.Files()) != 163 {
			b.Fatalf("%d files", len(c.Files()))
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// sparseGiB writes a file of 1 GiB that takes no disk space, and returns its path.
func sparseGiB(t testing.TB) string {
	header := `{"w":{"dtype":"BF16","shape":[32768,16384],"data_offsets":[0,1073741824]}}`
	path := filepath.Join(t.TempDir(), "model.safetensors")
	if err := os.WriteFile(path, fileBytes(header, 0), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(path, int64(8+len(header))+1<<30); err != nil {
		t.Fatal(err)
	}
	return path
}

func BenchmarkOpenGiB(b *testing.B) {
	path := sparseGiB(b)
	for b.Loop() {
		c, err := OpenFile(path)
		if err != nil {
			b.Fatal(err)
		}
		if err := c.Close(); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkWrite measures writing a file of 64 MiB.
func BenchmarkWrite(b *testing.B) {
	block := make([]byte, 1<<20)
	tensor := Source{Name: "w", DType: BF16, Shape: []int{32, 1 << 20}, Fill: func(w io.Writer) error {
		for range 64 {
			if _, err := w.Write(block); err != nil {
				return err
			}
		}
		return nil
	}}
	b.SetBytes(64 << 20)
	b.ReportAllocs()
	for b.Loop() {
		if err := Write(io.Discard, []Source{tensor}, nil); err != nil {
			b.Fatal(err)
		}
	}
}
