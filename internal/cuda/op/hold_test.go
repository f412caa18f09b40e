package op

import (
	"reflect"
	"slices"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// withoutGPU returns a device that checks launches but computes nothing.
func withoutGPU(t *testing.T) *Device {
	t.Helper()
	d, err := On(cuda.OpenDetached(cuda.Properties{Name: "detached", Major: 9, SMs: 132, SharedOptinBytes: 232448,
		MemoryBytes: 1 << 37, ClusterLaunch: true}))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// A held operation is launched before any other operation begins, except operations that can be fused with it. In this
// test such operations have other tensors, or none, and must not be fused. Accesses to memory also launch the held
// operation.
func TestHeldOperationsAreLaunched(t *testing.T) {
	d := withoutGPU(t)
	x, err := kernel.New(d, kernel.BF16, 4, 64)
	if err != nil {
		t.Fatal(err)
	}
	weight, err := kernel.New(d, kernel.F32, 1, 64)
	if err != nil {
		t.Fatal(err)
	}
	hold := func() {
		t.Helper()
		if err := d.Do(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6}); err != nil {
			t.Fatal(err)
		}
		if d.held.kind != holdNorm {
			t.Fatal("a norm is not held")
		}
	}
	launched := func(what string) {
		t.Helper()
		if d.held.kind != holdNothing || d.held.routes || d.held.parts.held() {
			t.Errorf("%s: a norm is still held", what)
		}
	}
	// These operations check their arguments first. With valid arguments they launch held operations, which GPU tests
	// check by comparing results.
	first := []kernel.Op{kernel.NormArgs{}, kernel.MultiplyArgs{}, kernel.ProjectArgs{}, kernel.RouteArgs{},
		kernel.RootRouteArgs{}, kernel.HashRouteArgs{}, kernel.ExpertArgs{}, kernel.IndexQueryArgs{},
		kernel.IndexStoreArgs{}, kernel.AbsorbArgs{}, kernel.LocateArgs{}, kernel.PostArgs{}, kernel.CompressArgs{},
		kernel.PutArgs{}, kernel.EntryStoreArgs{}, kernel.KeyStoreArgs{}, kernel.AngleArgs{}, kernel.EmbedArgs{}}
	for op := range operations {
		if slices.ContainsFunc(first, func(o kernel.Op) bool { return reflect.TypeOf(o) == op }) {
			continue
		}
		hold()
		_ = d.Do(reflect.Zero(op).Interface().(kernel.Op)) // launches the held operation, then refuses
		launched(op.Name())
	}
	word := make([]byte, 4)
	for name, access := range map[string]func() error{
		"Write": func() error { return d.Write(x, word) },
		"Read":  func() error { return d.Read(word, x) },
		"Sync":  d.Sync,
		"Fetch": func() error { _, err := d.Fetch(word, x); return err },
		"Reserve": func() error {
			return d.Reserve(func() error { return d.Do(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6}) })
		},
		"Capture": func() error {
			g, err := d.Capture(func() error {
				return d.Do(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6})
			})
			if err == nil {
				err = g.Close()
			}
			return err
		},
		"Free": func() error {
			b, err := d.Alloc(16)
			d.Free(b)
			return err
		},
	} {
		hold()
		if err := access(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		launched(name)
	}
}

// Parts share a launch unless one of them writes memory that another part reads or writes. A norm of other columns of
// the same rows also shares their launch.
func TestPartsShareALaunch(t *testing.T) {
	d := withoutGPU(t)
	take := func(kind kernel.DType, rows, columns int) kernel.Tensor {
		x, err := kernel.New(d, kind, rows, columns)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	x, first, second, places := take(kernel.F32, 3, 64), take(kernel.F32, 8, 64), take(kernel.F32, 8, 64),
		take(kernel.I32, 3, 1)
	both, weight := take(kernel.BF16, 3, 128), take(kernel.F32, 1, 64)
	put := func(out, x kernel.Tensor) func() error {
		return func() error { return d.Put(kernel.PutArgs{Out: out, X: x, Rows: places}) }
	}
	norm := func(x kernel.Tensor) func() error {
		return func() error { return d.Do(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6}) }
	}
	for _, c := range []struct {
		name     string
		ops      []func() error
		launches int64
	}{
		{"two places", []func() error{put(first, x), put(second, x)}, 1},
		{"the same place", []func() error{put(first, x), put(first, x)}, 2},
		{"what was written", []func() error{put(first, x), put(second, first.Slice(0, 3))}, 2},
		{"other columns", []func() error{put(first, both.Columns(64, 128)), norm(both.Columns(0, 64))}, 1},
		{"the same columns", []func() error{put(first, both.Columns(32, 96)), norm(both.Columns(0, 64))}, 2},
		{"five places", []func() error{put(first.Slice(0, 1), x), put(first.Slice(1, 2), x), put(first.Slice(2, 3), x),
			put(first.Slice(3, 4), x), put(first.Slice(4, 5), x)}, 2},
	} {
		before := d.Launches()
		for _, run := range c.ops {
			if err := run(); err != nil {
				t.Fatalf("%s: %v", c.name, err)
			}
		}
		if err := d.settle(); err != nil {
			t.Fatal(err)
		}
		if took := d.Launches() - before; took != c.launches {
			t.Errorf("%s: %d launches, want %d", c.name, took, c.launches)
		}
	}
}
