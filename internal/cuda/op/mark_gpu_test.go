package op

import (
	"testing"

	"sparrow/kernel"
)

// The device records the stages that it reaches; for a captured pass it records only that the pass began.
func TestGPUMarks(t *testing.T) {
	b := onGPU(t)
	reached := func(what string, want kernel.Mark) {
		t.Helper()
		if err := b.gpu.Sync(); err != nil {
			t.Fatal(err)
		}
		if got := b.gpu.Reached(); got != want {
			t.Errorf("%s: reached %#x, want %#x", what, got, want)
		}
	}
	for _, m := range []kernel.Mark{0x10203, 0x10204, 0x20301} {
		if err := b.gpu.Mark(m); err != nil {
			t.Fatal(err)
		}
		reached("a stage", m)
	}
	x, err := kernel.New(b.gpu, kernel.F32, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	y, err := kernel.New(b.gpu, kernel.F32, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	g, err := b.gpu.Capture(func() error {
		if err := b.gpu.Mark(0x30405); err != nil {
			return err
		}
		return b.gpu.Copy(kernel.CopyArgs{Out: y, X: x})
	})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	reached("a capture", 0x20301)
	if err := g.Launch(); err != nil {
		t.Fatal(err)
	}
	reached("a captured pass", kernel.MarkReplay)
}
