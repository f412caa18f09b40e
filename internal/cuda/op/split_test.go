package op

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"sparrow/kernel"
	"sparrow/kernel/cuda"
)

// silentHost is a host whose workers never answer.
type silentHost struct {
	box     *kernel.Mailbox
	swaps   [][2]int
	refuses error
}

func (h *silentHost) Layer() int                    { return 3 }
func (h *silentHost) Timeout() time.Duration        { return time.Second }
func (h *silentHost) Serve(b *kernel.Mailbox) error { h.box = b; return nil }
func (h *silentHost) Block() []byte                 { return nil }
func (h *silentHost) Stored(e int) (gate, up, down kernel.Weight) {
	panic("the experts are not shared")
}
func (h *silentHost) Swap(in, out int) error {
	h.swaps = append(h.swaps, [2]int{in, out})
	return h.refuses
}

// splitWeights returns bf16 experts with methods that are given as letters: r (resident), c (computed by the host) and
// f (fetched).
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

// Split experts use the launches that their methods need, for any number of rows, and the host's workers expect exactly
// the exchanges that are enqueued: without a graph immediately, in a graph with each launch of the graph, and none in a
// dry run.
func TestSplitLaunches(t *testing.T) {
	const experts, hidden, inner, top = 6, 64, 32, 2
	for _, c := range []struct {
		decode, prefill string
		rows, prompt    int
		launches        int64
		posts           uint32
	}{
		// The 7 launches are post, sort, gate and up, down, wait, take, and sum.
		{"rrrccc", "rrrccc", 4, 0, 7, 1},
		{"cccccc", "rrrrrr", 4, 0, 4, 1},      // no launches for sort and products
		{"cccccc", "rrrrrr", 4, 4, 5, 0},      // launches: places, sort, gate and up, down, sum
		{"rrrfff", "rrrfff", 4, 0, 10, 0},     // 5 further launches for the group: places, fetch, sort, 2 products
		{"rrrfff", "rrrfff", 4, 4, 11, 0},     // two copies replace the fetch: bf16 has no scales
		{"cccccc", "cccccc", 600, 600, 8, 2},  // so many rows need two exchanges
		{"rrrccc", "rrrccc", 600, 300, 14, 2}, // launches of both phases
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
		run := func() error { return errors.Join(d.Do(a), d.settle()) }
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

// Rows that are posted early are not posted again, and operations between the post and the experts run in order.
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
		if err := errors.Join(d.PostExperts(a), d.Do(a), d.settle()); err != nil {
			t.Fatal(err)
		}
		if n := h.box.Expected() - before; n != 1 || d.offload.posted.active {
			t.Fatalf("%d exchanges", n)
		}
	}
	if held, busy := d.scratch.Held(); busy != 0 || held == 0 {
		t.Errorf("%d of %d bytes of scratch memory are in use", busy, held)
	}
	// If a pass fails between the post and the experts, the next pass first waits for the workers.
	if err := errors.Join(d.PostExperts(a), d.PostExperts(a), d.Do(a), d.settle()); err != nil {
		t.Fatal(err)
	}
	other := a
	other.X = tensor(kernel.BF16, 64)
	err = errors.Join(d.PostExperts(a), d.Do(other))
	if err == nil || !strings.Contains(err.Error(), "these rows are not the ones") {
		t.Errorf("experts over other rows than were handed over: %v", err)
	}
	if _, busy := d.scratch.Held(); busy != 0 {
		t.Errorf("%d bytes of scratch memory are in use", busy)
	}
}

// A dry run counts the memory of the experts on the device and allocates no host memory.
func TestDryRunOfASplit(t *testing.T) {
	d, h := withoutGPU(t), &silentHost{}
	r, err := d.DryRun()
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

// When experts are moved, their entries in every table are updated, and only after the host's workers have read their
// part.
func TestMovedExperts(t *testing.T) {
	d, h := withoutGPU(t), &silentHost{}
	w := splitWeights(6, 64, 32, "rrrccf", "rrrfcf", h)
	w.Movable = true
	p, err := d.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	s := p.(*experts).split
	look := func() string {
		table, _ := s.slots(1, group{count: 2})
		return fmt.Sprint(s.places(0), s.places(1), table)
	}
	const n, c = notHere, cuda.OnHost
	before := fmt.Sprint([]int32{0, 1, 2, c, c, n}, []int32{0, 1, 2, n, c, n}, []int32{n, n, n, 1, n, 0})
	if got := look(); got != before {
		t.Fatalf("%s, want %s", got, before)
	}
	h.refuses = errors.New("a broken bank")
	if err := d.SwapExperts(p, 3, 1); !errors.Is(err, h.refuses) || look() != before {
		t.Errorf("%v: %s, want %s", err, look(), before)
	}
	h.refuses = nil
	for _, swap := range [][2]int{{3, 1}, {5, 0}, {4, 2}} { // resident in prefill, in both phases, in none
		if err := d.SwapExperts(p, swap[0], swap[1]); err != nil {
			t.Fatal(err)
		}
	}
	after := fmt.Sprint([]int32{n, c, c, 1, 2, 0}, []int32{n, n, c, 1, 2, 0}, []int32{0, 1, n, n, n, n})
	if got := look(); got != after || len(h.swaps) != 4 || !slices.Equal(w.Methods.Decode[:1],
		[]kernel.ExpertMethod{kernel.Resident}) {
		t.Errorf("%s, want %s; the workers swapped %v", got, after, h.swaps)
	}
	for _, swap := range [][2]int{{3, 1}, {0, 1}, {6, 0}, {0, -1}} {
		if err := d.SwapExperts(p, swap[0], swap[1]); !errors.Is(err, kernel.ErrArgument) || look() != after {
			t.Errorf("%v: %v", swap, err)
		}
	}
	if _, busy := d.scratch.Held(); busy != 0 {
		t.Errorf("%d bytes of scratch memory are in use", busy)
	}
}
