package op

import (
	"reflect"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// withoutGPU is a device whose launches are checked and compute nothing.
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

// A held operation is launched before any other operation begins, but for those that take it over: here they are given
// tensors of their own, or nothing at all, and must not take it. Accesses to memory launch it too.
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
		if err := d.Norm(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6}); err != nil {
			t.Fatal(err)
		}
		if d.held.kind != holdNorm {
			t.Fatal("a norm is not held")
		}
	}
	launched := func(what string) {
		t.Helper()
		if d.held.kind != holdNothing || d.held.routes {
			t.Errorf("%s: a norm is still held", what)
		}
	}
	// Those that check their arguments first; with good arguments they settle, as the GPU tests of bits show.
	first := map[string]bool{"Norm": true, "Multiply": true, "Project": true, "Route": true, "RouteRoot": true,
		"RouteHash": true, "Experts": true, "IndexQuery": true, "StoreIndex": true, "Absorb": true, "Locate": true,
		"PostExperts": true}
	methods, op := reflect.ValueOf(d), reflect.TypeFor[kernel.Op]()
	for i := range methods.NumMethod() {
		name, m := methods.Type().Method(i).Name, methods.Method(i)
		if t := m.Type(); first[name] || t.NumIn() != 1 || t.In(0).Kind() != reflect.Struct || !t.In(0).Implements(op) {
			continue
		}
		hold()
		m.Call([]reflect.Value{reflect.Zero(m.Type().In(0))}) // arguments that are refused, after the launch
		launched(name)
	}
	word := make([]byte, 4)
	for name, access := range map[string]func() error{
		"Write": func() error { return d.Write(x, word) },
		"Read":  func() error { return d.Read(word, x) },
		"Sync":  d.Sync,
		"Fetch": func() error { _, err := d.Fetch(word, x); return err },
		"Reserve": func() error {
			return d.Reserve(func() error { return d.Norm(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6}) })
		},
		"Capture": func() error {
			g, err := d.Capture(func() error {
				return d.Norm(kernel.NormArgs{Out: x, X: x, Weight: weight, Eps: 1e-6})
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
