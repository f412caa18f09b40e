package op

import (
	"bytes"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Weights that are loaded together have the same bytes in device memory as in their files. They are copied in one
// piece, in many pieces, or in pieces shared with other weights.
func TestGPULoadedTogether(t *testing.T) {
	d := onGPU(t).gpu
	list, made := loadTogether(t, d)
	compare := func(what string, p cuda.Ptr, want kernel.Tensor) {
		t.Helper()
		b := rowBytes(want)
		got := make([]byte, len(b))
		if err := d.stream.CopyToHost(got, p); err != nil {
			t.Fatal(err)
		}
		if err := d.Sync(); err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, b) {
			t.Errorf("%s of %v differ", what, want)
		}
	}
	for i, m := range made {
		w := list[i%len(list)]
		compare("values", m.data, w.Data)
		if w.Scale.Given() {
			compare("scales", m.scales, w.Scale)
		}
	}
	if free, _, err := d.MemoryFree(); err != nil || free == 0 || d.MemoryUse().Weights == 0 {
		t.Errorf("%d bytes free, weights %d, %v", free, d.MemoryUse().Weights, err)
	}
}
