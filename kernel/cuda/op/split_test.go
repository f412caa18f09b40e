package op

import (
	"errors"
	"strings"
	"testing"
	"time"

	"sparrow/kernel"
)

// silentHost stands for workers of which no answer is expected.
type silentHost struct {
	box *kernel.Mailbox
}

func (h *silentHost) Layer() int                    { return 3 }
func (h *silentHost) Timeout() time.Duration        { return time.Second }
func (h *silentHost) Serve(b *kernel.Mailbox) error { h.box = b; return nil }

// splitWeights are bf16 experts with methods, given as letters: r, c and f.
func splitWeights(experts, hidden, inner int, decode, prefill string, h kernel.HostExperts) kernel.ExpertWeights {
	matrix := func(out, in int) kernel.Weight {
		return kernel.Weight{Data: kernel.Tensor{Buf: make(kernel.HostBuffer, 2*out*in), DType: kernel.BF16, Rows: out,
			Cols: in, Stride: in}}
	}
	method := map[rune]kernel.ExpertMethod{'r': kernel.Resident, 'c': kernel.Computed, 'f': kernel.Fetched}
	w := kernel.ExpertWeights{Host: h}
	for i := range experts {
		w.Gate, w.Up = append(w.Gate, matrix(inner, hidden)), append(w.Up, matrix(inner, hidden))
		w.Down = append(w.Down, matrix(hidden, inner))
		w.Methods.Decode = append(w.Methods.Decode, method[rune(decode[i])])
		w.Methods.Prefill = append(w.Methods.Prefill, method[rune(prefill[i])])
	}
	return w
}

// Experts in two memories take the launches that their methods need, whatever the rows are, and the host's workers
// expect exactly the exchanges that are enqueued: plainly at once, from a graph with each launch of it, and none of a
// pass that is tried.
func TestSplitLaunches(t *testing.T) {
	const experts, hidden, inner, top = 6, 64, 32, 2
	for _, c := range []struct {
		decode, prefill string
		rows, prompt    int
		launches        int64
		posts           uint32
	}{
		// post, sort, gate and up, down, wait, take, sum
		{"rrrccc", "rrrccc", 4, 0, 7, 1},
		{"cccccc", "rrrrrr", 4, 0, 4, 1},      // no sort and no products
		{"cccccc", "rrrrrr", 4, 4, 5, 0},      // places, sort, gate and up, down, sum
		{"rrrfff", "rrrfff", 4, 0, 10, 0},     // and for the group places, fetch, sort, two products
		{"rrrfff", "rrrfff", 4, 4, 11, 0},     // two copies in place of the fetch: bf16 has no scales
		{"cccccc", "cccccc", 600, 600, 8, 2},  // two exchanges
		{"rrrccc", "rrrccc", 600, 300, 14, 2}, // of both phases
	} {
		d, h := withoutGPU(t), &silentHost{}
		x, err := d.PrepareExperts(splitWeights(experts, hidden, inner, c.decode, c.prefill, h))
		if err != nil {
			t.Fatal(err)
		}
		tensor := func(kind kernel.DType, cols int) kernel.Tensor {
			x, err := kernel.New(d, kind, c.rows, cols)
			if err != nil {
				t.Fatal(err)
			}
			return x
		}
		a := kernel.ExpertArgs{Out: tensor(kernel.BF16, hidden), X: tensor(kernel.BF16, hidden),
			IDs: tensor(kernel.I32, top), Weights: tensor(kernel.F32, top), Experts: x, Prompt: c.prompt}
		run := func() error { return errors.Join(d.Experts(a), d.settle()) }
		expected := func() uint32 {
			if h.box == nil {
				return 0
			}
			return h.box.Expected()
		}
		before := d.Launches()
		if d.offload.copies != nil {
			before += d.offload.copies.Launches()
		}
		if err := run(); err != nil {
			t.Fatal(err)
		}
		n := d.Launches() - before
		if d.offload.copies != nil {
			n += d.offload.copies.Launches()
		}
		if n != c.launches || expected() != c.posts {
			t.Errorf("%+v: %d launches and %d exchanges", c, n, expected())
		}
		if err := d.Reserve(run); err != nil || expected() != c.posts {
			t.Errorf("%+v: tried: %d exchanges, %v", c, expected(), err)
		}
		g, err := d.Capture(run)
		if err != nil || expected() != c.posts {
			t.Fatalf("%+v: captured: %d exchanges, %v", c, expected(), err)
		}
		if err := errors.Join(g.Launch(), g.Launch(), g.Close()); err != nil || expected() != 3*c.posts {
			t.Errorf("%+v: launched twice: %d exchanges, %v", c, expected(), err)
		}
	}
}

// Rows that are handed over early are not handed over again, and operations in between run in their order.
func TestPostedExperts(t *testing.T) {
	d, h := withoutGPU(t), &silentHost{}
	p, err := d.PrepareExperts(splitWeights(6, 64, 32, "rrrccc", "rrrccc", h))
	if err != nil {
		t.Fatal(err)
	}
	tensor := func(kind kernel.DType, cols int) kernel.Tensor {
		x, err := kernel.New(d, kind, 4, cols)
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	a := kernel.ExpertArgs{Out: tensor(kernel.BF16, 64), X: tensor(kernel.BF16, 64), IDs: tensor(kernel.I32, 2),
		Weights: tensor(kernel.F32, 2), Experts: p}
	for range 3 {
		before := h.box.Expected()
		if err := errors.Join(d.PostExperts(a), d.Experts(a), d.settle()); err != nil {
			t.Fatal(err)
		}
		if n := h.box.Expected() - before; n != 1 || d.offload.posted.active {
			t.Fatalf("%d exchanges", n)
		}
	}
	if held, busy := d.scratch.Held(); busy != 0 || held == 0 {
		t.Errorf("%d of %d bytes of scratch memory are in use", busy, held)
	}
	// A pass that failed between the two: the next one waits for the workers first.
	if err := errors.Join(d.PostExperts(a), d.PostExperts(a), d.Experts(a), d.settle()); err != nil {
		t.Fatal(err)
	}
	other := a
	other.X = tensor(kernel.BF16, 64)
	err = errors.Join(d.PostExperts(a), d.Experts(other))
	if err == nil || !strings.Contains(err.Error(), "other rows") {
		t.Errorf("experts over other rows than were handed over: %v", err)
	}
	if _, busy := d.scratch.Held(); busy != 0 {
		t.Errorf("%d bytes of scratch memory are in use", busy)
	}
}

// A rehearsal counts the device's part of the experts and takes no host memory.
func TestRehearsedSplit(t *testing.T) {
	d, h := withoutGPU(t), &silentHost{}
	r, err := d.Rehearse()
	if err != nil {
		t.Fatal(err)
	}
	before := r.(*Device).MemoryUse().Weights
	if _, err := r.PrepareExperts(splitWeights(6, 64, 32, "rrrccc", "rrrfff", h)); err != nil {
		t.Fatal(err)
	}
	half := r.(*Device).MemoryUse().Weights - before
	if _, err := r.PrepareExperts(splitWeights(6, 64, 32, "rrrrrr", "rrrrrr", h)); err != nil {
		t.Fatal(err)
	}
	if whole := r.(*Device).MemoryUse().Weights - before - half; h.box != nil || half == 0 || whole == 0 {
		t.Errorf("%d bytes with half of the experts, %d with all; mailbox %v", half, whole, h.box)
	}
	if err := r.Close(); err != nil {
		t.Error(err)
	}
}
