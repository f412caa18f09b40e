package device

import (
	"strings"
	"testing"

	"sparrow/builtin"
	"sparrow/internal/cuda/op"
	"sparrow/internal/model/family"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/cuda"
	"sparrow/weight"
)

// Random weights in host memory are refused if they do not fit. Weights that a GPU generates in its own memory are not
// limited here, and weights in files are mapped.
func TestWeightsThatAreDrawnHaveToFit(t *testing.T) {
	shape := func(gib int) *family.Source {
		w, err := weight.FromShapes("drawn", []weight.Tensor{{Name: "w", DType: weight.U8, Shape: []int{gib, 1 << 30},
			Drawn: &weight.Distribution{}}})
		if err != nil {
			t.Fatal(err)
		}
		return &family.Source{Name: "drawn", Weights: w}
	}
	files, err := builtin.Source()
	if err != nil {
		t.Fatal(err)
	}
	defer files.Close()
	onCPU, err := kernel.NewRegistry(cpu.Backends()).Open("cpu", kernel.Options{Workers: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer onCPU.Close()
	onGPU, err := op.On(cuda.OpenDetached(cuda.H200))
	if err != nil {
		t.Fatal(err)
	}
	defer onGPU.Close()
	for _, c := range []struct {
		name string
		src  *family.Source
		dev  kernel.Device
		free int64
		want string
	}{
		{"enough", shape(7), onCPU, 8 << 30, ""},
		{"the limit itself, memory not known", shape(8), onCPU, 0, ""},
		{"more than the limit, memory not known", shape(9), onCPU, 0,
			"take 9.00 GiB; if the free memory is unknown, at most 8.00 GiB"},
		{"more than the limit, less than the free memory", shape(9), onCPU, 64 << 30, ""},
		{"more than the free memory", shape(2), onCPU, 2 << 30, "take 2.00 GiB; 2.00 GiB of memory are free, and at " +
			"most 7/8"},
		{"a GPU", shape(9), onGPU, 1 << 30, ""},
		{"files", files, onCPU, 1, ""},
	} {
		err := checkDrawn(c.src, c.dev, c.free)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}
