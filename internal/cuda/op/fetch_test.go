package op

import (
	"testing"

	"sparrow/kernel"
)

// A buffer is used for one fetch at a time: fetches in flight have different buffers, and a buffer whose fetch was
// waited for is used again. A second wait does nothing.
func TestFetchesShareBuffers(t *testing.T) {
	d := withoutGPU(t)
	x, err := kernel.New(d, kernel.F32, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	fetch := func(bytes int) kernel.Event {
		t.Helper()
		e, err := d.Fetch(make([]byte, bytes), x)
		if err != nil {
			t.Fatal(err)
		}
		return e
	}
	wait := func(e kernel.Event) {
		t.Helper()
		if err := e.Wait(); err != nil {
			t.Error(err)
		}
	}
	for range 3 {
		first, second := fetch(64), fetch(256)
		if first == second || len(d.fetches) != 2 {
			t.Fatalf("two fetches in flight have %d buffers", len(d.fetches))
		}
		wait(first)
		wait(second)
		dst := make([]byte, 4)
		again, err := d.Fetch(dst, x)
		if err != nil {
			t.Fatal(err)
		}
		wait(again)
		dst[0] = 7
		wait(again)
		if dst[0] != 7 {
			t.Error("a second wait copied results again")
		}
	}
	if _, err := d.Fetch(make([]byte, 257), x); err == nil {
		t.Error("more bytes than the tensor has were fetched")
	}
}
