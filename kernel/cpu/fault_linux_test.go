package cpu

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"sparrow/internal/mmap"
	"sparrow/kernel"
)

// If the file of mapped weights is truncated, the operation fails with a clear error, for every kind of kernel; the
// process and the device continue.
func TestTruncatedWeightsFailTheOperation(t *testing.T) {
	const out, in = 512, 1024
	for _, b := range Backends() {
		if b.Available != nil && b.Available() != nil {
			continue
		}
		t.Run(b.Name, func(t *testing.T) { truncate(t, b, out, in) })
	}
}

func truncate(t *testing.T, b kernel.Backend, out, in int) {
	dev, err := b.Open(kernel.Options{Workers: 2})
	if err != nil {
		t.Skip(err)
	}
	for _, d := range []kernel.DType{kernel.F32, kernel.BF16, kernel.F16} {
		path := filepath.Join(t.TempDir(), "w")
		if err := os.WriteFile(path, make([]byte, out*in*d.Size()), 0o644); err != nil {
			t.Fatal(err)
		}
		file, err := mmap.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		m, err := dev.Prepare(kernel.Weight{Data: kernel.Tensor{Buf: kernel.HostBuffer(file.Bytes()), DType: d,
			Rows: out, Cols: in, Stride: in}}, kernel.Projected)
		if err != nil {
			t.Fatal(err)
		}
		for _, rows := range []int{1, 5, 40} {
			x, err := kernel.New(dev, kernel.F32, rows, in)
			if err != nil {
				t.Fatal(err)
			}
			y, err := kernel.New(dev, kernel.F32, rows, out)
			if err != nil {
				t.Fatal(err)
			}
			args := kernel.MultiplyArgs{Out: y, X: x, W: m}
			if err := os.Truncate(path, int64(out*in*d.Size())); err != nil {
				t.Fatal(err)
			}
			if err := kernel.Do(dev, args); err != nil {
				t.Fatalf("%s, %v, %d rows, the whole file: %v", b.Name, d, rows, err)
			}
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
			if err := kernel.Do(dev, args); !errors.Is(err, kernel.ErrLost) ||
				!strings.Contains(err.Error(), "weights on disk changed") {
				t.Errorf("%s, %v, %d rows, a truncated file: %v", b.Name, d, rows, err)
			}
		}
		if err := file.Close(); err != nil {
			t.Error(err)
		}
	}
	if err := dev.Close(); err != nil {
		t.Error(err)
	}
}
