package steps

import (
	"testing"

	"sparrow/internal/model"
	"sparrow/kernel"
	"sparrow/plan"
)

// weighed is a device that counts the bytes that are allocated.
type weighed struct {
	kernel.Device
	bytes int64
}

func (w *weighed) Alloc(n int64) (kernel.Buffer, error) {
	w.bytes += n
	return w.Device.Alloc(n)
}

func (w *weighed) Free(b kernel.Buffer) {
	w.bytes -= b.Len()
	w.Device.Free(b)
}

// freed is a model whose cache can be freed.
type freed interface {
	Model
	model.Windowed
	model.Paged
	Free()
}

// Memory checks that the cache and the states of a checkpoint take as many bytes as the model computes, that states for
// which memory is reserved allocate none, and that the memory of an earlier cache is freed, also if only one of the two
// configurations has drafts. The parts of all pages and window pages are the whole cache.
func Memory[M freed](t *testing.T, dir string, p plan.Policy, drafts int) {
	t.Helper()
	dev := &weighed{Device: Device(t, "cpu")}
	m := OpenOn[M](t, dir, dev)
	loaded := dev.bytes
	var states []model.State
	drafting := p
	drafting.Speculation.Tokens = drafts
	for _, x := range []struct {
		policy                plan.Policy
		pages, windows, slots int
	}{{p, 5, 3, 20}, {drafting, 5, 3, 20}, {drafting, 7, 2, 36}, {p, 7, 2, 36}} {
		cfg := resolve(t, m, x.policy)
		if err := m.AllocateWindows(&cfg, x.pages, x.windows); err != nil {
			t.Fatal(err)
		}
		if err := m.Reserve(x.slots); err != nil {
			t.Fatal(err)
		}
		for range x.slots {
			st, err := m.NewState()
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, st)
		}
		for _, st := range states {
			st.Release()
		}
		states = states[:0]
		window := m.WindowBytes(&cfg)
		want := int64(x.pages)*(m.PageBytes(&cfg)-window) + int64(x.windows)*window +
			int64(x.slots)*m.StateBytes(&cfg)
		checkParts(t, m, &cfg, x.pages, x.windows)
		if got := dev.bytes - loaded; got != want {
			t.Errorf("%d verified rows, %d pages, %d window pages and %d states: %d bytes, computed %d", cfg.N, x.pages,
				x.windows, x.slots, got, want)
		}
		if x.pages == 7 && x.policy == p {
			m.Free()
			if got, want := dev.bytes-loaded, int64(x.slots)*m.StateBytes(&cfg); got != want {
				t.Errorf("%d bytes without a cache, the states have %d", got, want)
			}
		}
	}
}

// checkParts checks that the parts of each page and of each window page have the computed number of bytes, and that no
// byte belongs to two of them.
func checkParts(t *testing.T, m freed, cfg *plan.Config, pages, windows int) {
	t.Helper()
	taken := map[*byte]int64{} // number of the next byte that is free in each buffer
	add := func(parts []kernel.Tensor, want int64) {
		t.Helper()
		got := int64(0)
		for _, x := range parts {
			got += x.Extent()
			first := &x.Buf.(kernel.HostBuffer)[0]
			if x.Off != taken[first] {
				t.Errorf("a part begins at byte %d of its buffer, want %d", x.Off, taken[first])
			}
			taken[first] = x.Off + x.Extent()
		}
		if got != want {
			t.Errorf("%d verified rows: %d parts have %d bytes, computed %d", cfg.N, len(parts), got, want)
		}
	}
	window := m.WindowBytes(cfg)
	for page := range pages {
		add(m.PageParts(nil, page), m.PageBytes(cfg)-window)
	}
	for page := range windows {
		add(m.WindowParts(nil, page), window)
	}
}
