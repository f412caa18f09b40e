package op

import (
	"errors"
	"strings"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// Without a Hopper GPU the backend reports the reason, under both of its names.
func TestBackendSaysWhyItCannotRun(t *testing.T) {
	var why *cuda.Unavailable
	if err := cuda.Available(); !errors.As(err, &why) {
		t.Skipf("there is a Hopper GPU, or its driver failed: %v", err)
	}
	b := Backends()[0]
	here := b.Available()
	if !errors.Is(here, kernel.ErrUnavailable) || here.Error() != why.Reason+"; "+why.Try {
		t.Errorf("available: %v, want %v", here, why)
	}
	if _, err := b.Open(kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) {
		t.Errorf("open: %v, want ErrUnavailable", err)
	}
	r := kernel.NewRegistry(Backends())
	for asked, want := range map[string]string{"cuda": "cuda (" + here.Error() + ")",
		"sm90": "sm90 (cuda: " + here.Error() + ")"} {
		if _, err := r.Open(asked, kernel.Options{}); !errors.Is(err, kernel.ErrUnavailable) ||
			!strings.HasSuffix(err.Error(), ": "+want) {
			t.Errorf("%s: %v, want it to end in %q", asked, err, want)
		}
	}
}

// A trace lists launches in their order, with their labels; without a trace no launch is listed.
func TestTracedLaunches(t *testing.T) {
	d := detached(t)
	trace := d.Tracer()
	x, err := kernel.New(d, kernel.F32, 2, 4)
	if err != nil {
		t.Fatal(err)
	}
	run := func(times int) {
		t.Helper()
		for range times {
			if err := d.Draw(x, kernel.Drawn{Spread: 1}); err != nil {
				t.Fatal(err)
			}
		}
	}
	run(1)
	if list, err := trace.Traced(); err != nil || len(list) != 0 {
		t.Errorf("no trace: %v, %v", list, err)
	}
	if err := trace.Trace(true); err != nil {
		t.Fatal(err)
	}
	trace.TraceLabel(3)
	run(2)
	trace.TraceLabel(4)
	run(500) // more launches than a blocked stream can hold
	list, err := trace.Traced()
	if err != nil || len(list) != 502 {
		t.Fatalf("%d launches, %v", len(list), err)
	}
	for i, l := range list {
		want := 4
		if i < 2 {
			want = 3
		}
		if l.Kernel != "draw_values" || l.Label != want {
			t.Errorf("launch %d: %+v", i, l)
		}
	}
	if list, err := trace.Traced(); err != nil || len(list) != 0 {
		t.Errorf("the same launches again: %v, %v", list, err)
	}
	if err := trace.Trace(false); err != nil {
		t.Error(err)
	}
}

// A dry run uses no memory of the device that it represents and computes the memory that weights would need, even if
// it exceeds the device's memory.
func TestDryRun(t *testing.T) {
	d := detached(t)
	free, _, err := d.MemoryFree()
	if err != nil {
		t.Fatal(err)
	}
	r, err := d.DryRun()
	if err != nil {
		t.Fatal(err)
	}
	w := kernel.Weight{Data: kernel.Tensor{Buf: kernel.Drawn{Bytes: 2 << 35}, DType: kernel.BF16, Rows: 1 << 20,
		Cols: 1 << 15, Stride: 1 << 15}}
	if _, err := r.Prepare(w, kernel.Projected); err != nil {
		t.Error(err)
	}
	if got := r.(kernel.MemoryOwner).MemoryUse().Weights; got != 2<<35 {
		t.Errorf("weights take %d bytes, want %d", got, int64(2<<35))
	}
	if left, _, err := kernel.MemoryFree(r); err != nil || left != 0 {
		t.Errorf("%d bytes are left of %d, %v", left, free, err)
	}
	if now, _, err := d.MemoryFree(); err != nil || now != free {
		t.Errorf("%d bytes are free, %d before, %v", now, free, err)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
