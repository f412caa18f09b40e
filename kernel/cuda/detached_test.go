package cuda

import (
	"errors"
	"testing"

	"sparrow/layout"
)

// A detached device checks arguments and returns memory addresses like a GPU, and launches nothing.
func TestDetached(t *testing.T) {
	d := OpenDetached(Properties{Name: "none", Major: 9, SMs: 132, SharedOptinBytes: 232448, MemoryBytes: 1 << 30})
	k, err := d.LoadKernels()
	if err != nil {
		t.Fatal(err)
	}
	s, err := d.NewStream()
	if err != nil {
		t.Fatal(err)
	}
	a, err := d.Alloc(100)
	if err != nil {
		t.Fatal(err)
	}
	b, err := d.Alloc(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if a.Ptr() == 0 || !a.Ptr().aligned(256) || !b.Ptr().aligned(256) || b.Ptr() < a.Ptr().Add(100) {
		t.Errorf("memory at %#x and %#x", a.Ptr(), b.Ptr())
	}
	args := someWrite()
	if err := WriteMain(k, s, layout.BF16Row1152, &args); err != nil {
		t.Errorf("good arguments: %v", err)
	}
	args.Latent++
	if err := WriteMain(k, s, layout.BF16Row1152, &args); !errors.Is(err, ErrArgument) {
		t.Errorf("an odd address: %v", err)
	}
	if free, total, err := d.MemoryFree(); err != nil || free != 1<<30-1<<20-100 || total != 1<<30 {
		t.Errorf("%d of %d bytes free, %v", free, total, err)
	}
	if err := errors.Join(a.Free(), b.Free(), s.Sync(), s.Close(), k.Close(), d.Close()); err != nil {
		t.Error(err)
	}
	if err := d.Sync(); !errors.Is(err, ErrClosed) {
		t.Errorf("after closing: %v", err)
	}
}
