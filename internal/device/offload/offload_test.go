package offload_test

import (
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"sparrow/internal/device/host"
	"sparrow/internal/device/offload"
	"sparrow/internal/num"
	"sparrow/internal/testkit/await"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/kernel/ref"
)

// The tests of this file check these invariants: experts that are split between the memories of the device and of the
// host give results bitwise equal to those of a single device, for any placement and any batch. If workers fail or
// hang, the operation ends with an error that names the workers. All memory is released.

const (
	experts = 6
	hidden  = 128
	inner   = 64
	top     = 3
)

// open returns a CPU device with one worker.
func open(t testing.TB) *cpu.Device {
	t.Helper()
	d := cpu.Open(vec.Best(), kernel.Options{Workers: 1})
	t.Cleanup(func() { d.Close() })
	return d
}

// newHost calls newBareHost and checks that closing the host ends all goroutines.
func newHost(t testing.TB, dev kernel.Device, o offload.Options) *offload.Host {
	t.Helper()
	before := runtime.NumGoroutine()
	t.Cleanup(func() { await.Goroutines(t, before) })
	return newBareHost(t, dev, o)
}

// newBareHost returns a host whose workers compute on dev.
func newBareHost(t testing.TB, dev kernel.Device, o offload.Options) *offload.Host {
	t.Helper()
	h, err := offload.New(dev, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := h.Close(); err != nil {
			t.Error(err)
		}
	})
	return h
}

func tensor(t testing.TB, d kernel.DType, rows, cols int, fill func(b []byte)) kernel.Tensor {
	t.Helper()
	x, err := kernel.New(host.Memory{}, d, rows, cols)
	if err != nil {
		t.Fatal(err)
	}
	fill(host.Bytes(x))
	return x
}

// matrix returns a random weight of type d and shape [out, in].
func matrix(t testing.TB, r *rand.Rand, d kernel.DType, out, in int) kernel.Weight {
	t.Helper()
	small := func() float32 { return float32(r.NormFloat64() * 0.1) }
	switch d {
	case kernel.E4M3:
		return kernel.Weight{BlockRows: 128, BlockCols: 128,
			Data: tensor(t, d, out, in, func(b []byte) {
				for i := range b {
					b[i] = num.E4M3(small() * 10)
				}
			}),
			Scale: tensor(t, kernel.F32, (out+127)/128, (in+127)/128, func(b []byte) {
				for i := range b {
					b[i] = []byte{0, 0, 0, 0x3E}[i%4] // 0x3E000000 is 0.125
				}
			})}
	case kernel.E2M1x2:
		return kernel.Weight{BlockRows: 1, BlockCols: 32,
			Data: tensor(t, d, out, in/2, func(b []byte) {
				for i := range b {
					b[i] = byte(r.Uint32())
				}
			}),
			Scale: tensor(t, kernel.E8M0, out, in/32, func(b []byte) {
				for i := range b {
					b[i] = byte(121 + r.IntN(3))
				}
			})}
	}
	w := kernel.Weight{Data: tensor(t, kernel.BF16, out, in, func([]byte) {})}
	for i := range host.U16(w.Data) {
		host.U16(w.Data)[i] = num.BF16(small())
	}
	return w
}

func weights(t testing.TB, r *rand.Rand, d kernel.DType) kernel.ExpertWeights {
	t.Helper()
	var w kernel.ExpertWeights
	for range experts {
		w.Gate = append(w.Gate, matrix(t, r, d, inner, hidden))
		w.Up = append(w.Up, matrix(t, r, d, inner, hidden))
		w.Down = append(w.Down, matrix(t, r, d, hidden, inner))
	}
	return w
}

// batch returns random rows with the experts that they choose.
func batch(t testing.TB, r *rand.Rand, rows int) kernel.ExpertArgs {
	t.Helper()
	floats := func(rows, cols int) kernel.Tensor {
		x := tensor(t, kernel.F32, rows, cols, func([]byte) {})
		for i := range host.F32(x) {
			host.F32(x)[i] = float32(r.NormFloat64())
		}
		return x
	}
	a := kernel.ExpertArgs{Out: floats(rows, hidden), X: floats(rows, hidden), Weights: floats(rows, top), Limit: 7}
	a.IDs = tensor(t, kernel.I32, rows, top, func([]byte) {})
	for i := range rows {
		for j, e := range r.Perm(experts)[:top] {
			host.RowI32(a.IDs, i)[j] = int32(e)
		}
	}
	return a
}

// methods converts letters, one for each expert, to methods: r (resident), c (computed by the host) and f (fetched).
func methods(t testing.TB, decode, prefill string) kernel.ExpertMethods {
	t.Helper()
	of := func(text string) (out []kernel.ExpertMethod) {
		for _, c := range text {
			out = append(out, map[rune]kernel.ExpertMethod{'r': kernel.Resident, 'c': kernel.Computed,
				'f': kernel.Fetched}[c])
		}
		return out
	}
	return kernel.ExpertMethods{Decode: of(decode), Prefill: of(prefill)}
}

// prepare places the experts of a layer on a device and a host.
func prepare(t testing.TB, near kernel.Device, h *offload.Host, layer int, w kernel.ExpertWeights,
	m kernel.ExpertMethods) kernel.Experts {
	t.Helper()
	w.Methods, w.Shared = m, w.Plain()
	var err error
	if w.Host, err = h.Prepare(layer, w); err != nil {
		t.Fatal(err)
	}
	x, err := near.PrepareExperts(w)
	if err != nil {
		t.Fatal(err)
	}
	if x.Count() != experts || x.Hidden() != hidden || x.Inner() != inner {
		t.Fatalf("the device prepared %d experts of %d x %d", x.Count(), x.Inner(), x.Hidden())
	}
	return x
}

// run computes the experts of a batch and returns a copy of the output.
func run(t testing.TB, dev kernel.Device, x kernel.Experts, a kernel.ExpertArgs) []float32 {
	t.Helper()
	out := tensor(t, kernel.F32, a.Out.Rows, hidden, func(b []byte) { copy(b, host.Bytes(a.Out)) })
	a.Out, a.Experts = out, x
	if err := kernel.Do(dev, a); err != nil {
		t.Fatal(err)
	}
	return host.F32(out)
}

func sameBits(t testing.TB, what string, got, want []float32) {
	t.Helper()
	for i := range want {
		if math.Float32bits(got[i]) != math.Float32bits(want[i]) {
			t.Fatalf("%s: element %d of row %d is %v, want %v", what, i%hidden, i/hidden, got[i], want[i])
		}
	}
}

var splits = [][2]string{
	{"rrrrrr", "rrrrrr"}, {"rrrccc", "rrrccc"}, {"cccccc", "cccccc"}, {"rcrcrc", "rfrfrf"}, {"ffffff", "ffffff"},
	{"cfrcfr", "frcfrc"}, {"crrrrr", "rrrrrc"}, {"rrrrrr", "cccccc"},
}

// For any placement of experts, rows are bitwise equal to those of a single device, for every type of weight, in
// batches that need several exchanges, and with rows of prompts first.
func TestBitsOfOneDevice(t *testing.T) {
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2} {
		r := rand.New(rand.NewPCG(uint64(kind), 1))
		w := weights(t, r, kind)
		plain := open(t)
		whole, err := plain.PrepareExperts(w)
		if err != nil {
			t.Fatal(err)
		}
		near, h := open(t), newHost(t, open(t), offload.Options{})
		for layer, split := range splits {
			x := prepare(t, near, h, layer, w, methods(t, split[0], split[1]))
			for _, rows := range []int{1, 2, 17, 1100} {
				if rows > 100 && layer != 1 && layer != 3 {
					continue
				}
				a := batch(t, r, rows)
				want := run(t, plain, whole, a)
				for _, prompt := range []int{0, rows / 2, rows} {
					a.Prompt = prompt
					what := fmt.Sprintf("%v, decode %s, prefill %s, %d of %d rows of prompts", kind, split[0], split[1],
						prompt, rows)
					sameBits(t, what, run(t, near, x, a), want)
				}
			}
		}
	}
}

// Moving experts one after the other between device memory and host memory does not change the bits of any row, whether
// weights are copied over others, packed or mapped. Experts that cannot be moved are refused.
func TestBitsOfMovedExperts(t *testing.T) {
	for _, kind := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2} {
		r := rand.New(rand.NewPCG(uint64(kind), 2))
		w := weights(t, r, kind)
		w.Movable = true
		plain := open(t)
		whole, err := plain.PrepareExperts(w)
		if err != nil {
			t.Fatal(err)
		}
		for _, pack := range []bool{false, true} {
			device := func() *cpu.Device {
				d := cpu.Open(vec.Best(), kernel.Options{Workers: 1, Pack: pack})
				t.Cleanup(func() { d.Close() })
				return d
			}
			near, h := device(), newHost(t, device(), offload.Options{})
			for layer, split := range [][2]string{{"rrrccc", "rrrccc"}, {"rrrccc", "rrrfff"}, {"rrrrff", "rrrrff"},
				{"rrrfcf", "rrrfcc"}} {
				m := methods(t, split[0], split[1])
				x := prepare(t, near, h, layer, w, m)
				for range 8 {
					a := batch(t, r, 17)
					a.Prompt = r.IntN(18)
					what := fmt.Sprintf("%v, packed %v, decode %v, prefill %v", kind, pack, m.Decode, m.Prefill)
					sameBits(t, what, run(t, near, x, a), run(t, plain, whole, a))
					far := m.Where(kernel.Computed, kernel.Fetched)
					in, out := far[r.IntN(len(far))], r.IntN(experts)
					err := near.SwapExperts(x, in, out)
					if wrong := m.Swap(in, out); (err != nil) != (wrong != nil) ||
						err != nil && !errors.Is(err, kernel.ErrArgument) {
						t.Fatalf("%s: replacing expert %d by expert %d: error %v", what, in, out, err)
					}
				}
			}
		}
		w.Movable = false
		near, h := open(t), newHost(t, open(t), offload.Options{})
		x := prepare(t, near, h, 0, w, methods(t, "rrrccc", "rrrccc"))
		if err := near.SwapExperts(x, 3, 0); !errors.Is(err, kernel.ErrUnsupported) {
			t.Errorf("moving experts that were not prepared to be moved: error %v", err)
		}
	}
}

// mailbox returns a mailbox that a host serves for a layer.
func mailbox(t testing.TB, served kernel.HostExperts, d kernel.DType) *kernel.Mailbox {
	t.Helper()
	shape := kernel.MailboxShape{Activation: d, Hidden: hidden, Rows: 8, Pairs: 8 * top}
	_, _, _, size := shape.Offsets()
	memory, err := host.Memory{}.Alloc(size)
	if err != nil {
		t.Fatal(err)
	}
	box, err := kernel.NewMailbox(shape, memory.(kernel.HostBuffer))
	if err != nil {
		t.Fatal(err)
	}
	if err := served.Serve(box); err != nil {
		t.Fatal(err)
	}
	return box
}

// A device with bf16 rows gets results that were rounded once, in the first exchange and in later ones of any size. The
// host counts the experts that it computed, each once for an exchange, and their bytes.
func TestRowsOfBF16(t *testing.T) {
	for _, d := range []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2} {
		r := rand.New(rand.NewPCG(5, 5))
		w, far := weights(t, r, d), open(t)
		each := int64(0)
		for _, m := range []kernel.Weight{w.Gate[0], w.Up[0], w.Down[0]} {
			each += int64(len(host.Bytes(m.Data)))
			if m.Scale.Given() {
				each += int64(len(host.Bytes(m.Scale)))
			}
		}
		h := newHost(t, far, offload.Options{})
		w.Methods = methods(t, "rccccc", "rccccc")
		served, err := h.Prepare(7, w)
		if err != nil {
			t.Fatal(err)
		}
		box := mailbox(t, served, kernel.BF16)
		whole, err := far.PrepareExperts(w.Select([]int{0, 1, 2, 3, 4, 5}))
		if err != nil {
			t.Fatal(err)
		}
		var work offload.Work
		for _, rows := range []int{5, 5, 8, 1, 3} {
			a := batch(t, r, rows)
			for row := range rows {
				for c, v := range host.RowF32(a.X, row) {
					host.U16(box.X.Slice(row, row+1))[c] = num.BF16(v)
					host.RowF32(a.X, row)[c] = num.RoundBF16(v)
				}
			}
			host.RowI32(a.IDs, rows/2)[1] = -1 // this row is padding
			copy(host.I32(box.IDs), host.I32(a.IDs))
			held := append([]uint16(nil), host.U16(box.Results)...) // results of other pairs are not written
			box.Post(kernel.Message{Layer: 7, Rows: rows, Top: top, Limit: a.Limit})
			if err := box.Await(time.Minute); err != nil {
				t.Fatal(err)
			}
			want := tensor(t, kernel.F32, rows*top, hidden, func([]byte) {})
			if err := far.ExpertRows(kernel.ExpertRowsArgs{Results: want, X: a.X, IDs: a.IDs, Experts: whole,
				Limit: a.Limit}); err != nil {
				t.Fatal(err)
			}
			chosen := map[int32]bool{}
			for pair, e := range host.I32(a.IDs) {
				if e > 0 {
					chosen[e] = true
				}
				for c, v := range host.RowF32(want, pair) {
					got := host.U16(box.Results.Slice(pair, pair+1))[c]
					if e > 0 && got != num.BF16(v) || e <= 0 && got != held[pair*hidden+c] {
						t.Fatalf("%v, %d rows: pair %d of expert %d, column %d: %#x, want %#x", d, rows, pair, e, c,
							got, num.BF16(v))
					}
				}
			}
			before := work.Busy
			work.Exchanges++
			work.Experts += int64(len(chosen))
			work.Bytes += int64(len(chosen)) * each
			got := h.Work()
			if work.Busy = got.Busy; got != work || got.Busy < before {
				t.Errorf("%v, %d rows: the host counts %+v, want %+v", d, rows, got, work)
			}
		}
		if work.Busy <= 0 {
			t.Errorf("%v: computing experts took no time", d)
		}
	}
}

// A message that does not fit the mailbox or the layer is answered with an error that states the reason; the next
// message is computed.
func TestMessagesThatDoNotFit(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	w := weights(t, r, kernel.BF16)
	w.Methods = methods(t, "cccccc", "cccccc")
	h := newHost(t, open(t), offload.Options{})
	served, err := h.Prepare(7, w)
	if err != nil {
		t.Fatal(err)
	}
	box := mailbox(t, served, kernel.F32)
	for _, c := range []struct {
		name             string
		layer, rows, top int
		expert           int32
		want             string
	}{
		{"all rows", 7, 8, top, 5, ""},
		{"no rows", 7, 0, top, 0, ""},
		{"an unknown layer", 6, 1, top, 0, "the layer is unknown"},
		{"rows without choices", 7, 1, 0, 0, "or 1 rows of 0 choices do not fit"},
		{"too many rows", 7, 9, top, 0, "want at most 8 rows"},
		{"more rows of fewer choices", 7, 9, 1, 0, "want at most 8 rows"},
		{"too many choices", 7, 5, 5, 0, "want at most 4 rows"},
		{"an expert too many", 7, 1, top, experts, "row 0 chose expert 6, outside the 6 experts"},
	} {
		for i := range host.I32(box.IDs) {
			host.I32(box.IDs)[i] = c.expert
		}
		box.Post(kernel.Message{Layer: c.layer, Rows: c.rows, Top: c.top, Limit: 7})
		err := box.Await(time.Minute)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
}

// After buffers have grown, an exchange allocates nothing.
func TestNoAllocation(t *testing.T) {
	r := rand.New(rand.NewPCG(6, 6))
	near, h := open(t), newHost(t, open(t), offload.Options{Awake: true})
	a := batch(t, r, 4)
	a.Experts = prepare(t, near, h, 0, weights(t, r, kernel.BF16), methods(t, "rrrccc", "rrrccc"))
	var op kernel.Op = a
	if n := testing.AllocsPerRun(50, func() {
		if err := near.Do(op); err != nil {
			t.Fatal(err)
		}
	}); n > 0 {
		t.Errorf("%v allocations in an exchange, want 0", n)
	}
}

// faulty is a device that calls a function of the test in place of Experts.
type faulty struct {
	*cpu.Device
	before func() error
}

func (d *faulty) ExpertRows(a kernel.ExpertRowsArgs) error {
	if err := d.before(); err != nil {
		return err
	}
	return d.Device.ExpertRows(a)
}

// If workers fail or panic, the operation ends with an error that names the workers and the layer. The next operation
// runs normally.
func TestWorkersThatFail(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	w, a := weights(t, r, kernel.BF16), batch(t, r, 3)
	var fail func() error
	far := &faulty{open(t), func() error { return fail() }}
	near, h := open(t), newHost(t, far, offload.Options{})
	x := prepare(t, near, h, 12, w, methods(t, "rrrccc", "rrrccc"))
	broken := errors.New("a disk is gone")
	fail = func() error { return nil }
	want := run(t, near, x, a)
	for what, f := range map[string]func() error{
		broken.Error():     func() error { return broken },
		"panic: no memory": func() error { panic("no memory") },
	} {
		fail = f
		b := a
		b.Experts = x
		err := near.Do(b)
		if err == nil || !strings.Contains(err.Error(), what) ||
			!strings.Contains(err.Error(), "experts in host memory of layer 12 (cpu-") {
			t.Errorf("error %v, want %q", err, what)
		}
		fail = func() error { return nil }
		sameBits(t, "after "+what, run(t, near, x, a), want)
	}
}

// If workers hang, the operation ends after the timeout and every later operation ends immediately; the device can be
// closed.
func TestWorkersThatHang(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := rand.New(rand.NewPCG(9, 9))
		a, free := batch(t, r, 3), make(chan struct{})
		far := &faulty{open(t), func() error { <-free; return nil }}
		near, h := open(t), newBareHost(t, far, offload.Options{Timeout: 20 * time.Millisecond})
		a.Experts = prepare(t, near, h, 4, weights(t, r, kernel.BF16), methods(t, "rrrccc", "rrrccc"))
		begun := time.Now()
		for range 2 {
			err := near.Do(a)
			if !errors.Is(err, kernel.ErrLost) || !strings.Contains(err.Error(), "layer 4, 3 rows") ||
				!strings.Contains(err.Error(), "did not answer for 20ms") || time.Since(begun) != 20*time.Millisecond {
				t.Errorf("error %v after %v", err, time.Since(begun))
			}
		}
		close(free)
	})
}

// If memory is too small, the error states the required and available bytes before anything is copied.
func TestTooLittleMemory(t *testing.T) {
	r := rand.New(rand.NewPCG(10, 10))
	w := weights(t, r, kernel.BF16)
	each := int64(3 * hidden * inner * 2)
	h := newHost(t, open(t), offload.Options{Memory: 4 * each})
	w.Methods = methods(t, "rrrccc", "rrrccc")
	if _, err := h.Prepare(0, w); err != nil {
		t.Fatal(err)
	}
	_, err := h.Prepare(1, w)
	if !errors.Is(err, kernel.ErrMemory) || !strings.Contains(err.Error(), "layer 1") ||
		!strings.Contains(err.Error(), "need 288.0 KiB, but the limit is 192.0 KiB, 96.0 KiB less") {
		t.Errorf("%v", err)
	}
	tried := h.DryRun()
	for layer := range 3 {
		if _, err := tried.Prepare(layer, w); err != nil {
			t.Fatal(err)
		}
	}
	if err := tried.Fits(tried.Used()); tried.Used() != 9*each || !errors.Is(err, kernel.ErrMemory) {
		t.Errorf("%d bytes are counted, want %d; error %v", tried.Used(), 9*each, err)
	}
	// Scales and zero points count, too.
	w.Methods = methods(t, "rrrrrc", "rrrrrc")
	last := &w.Down[len(w.Down)-1]
	last.Scale = kernel.Tensor{DType: kernel.F32, Rows: 3, Cols: 5}
	last.Zero = kernel.Tensor{DType: kernel.U8, Rows: 3, Cols: 7}
	more := h.DryRun()
	if _, err := more.Prepare(0, w); err != nil || more.Used() != each+3*5*4+3*7 {
		t.Errorf("%d bytes are counted, want %d; error %v", more.Used(), each+3*5*4+3*7, err)
	}
}

// Unsupported arguments are refused with an error that states what is supported.
func TestRefusals(t *testing.T) {
	if _, err := offload.New(&ref.Device{}, offload.Options{}); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("a host device without expert rows: error %v", err)
	}
	r := rand.New(rand.NewPCG(11, 11))
	near := open(t)
	for what, spoil := range map[string]func(*kernel.ExpertWeights){
		"no workers":          func(w *kernel.ExpertWeights) { w.Methods = methods(t, "rrrccc", "rrrccc") },
		"3 methods of decode": func(w *kernel.ExpertWeights) { w.Methods = methods(t, "ccc", "cccccc") },
		"2 of prefill, want one for each of " +
			"6": func(w *kernel.ExpertWeights) { w.Methods = methods(t, "cccccc", "cc") },
		"method(9)": func(w *kernel.ExpertWeights) {
			w.Methods = methods(t, "rrrrrf", "rrrrrr")
			w.Methods.Decode[0] = 9
		},
	} {
		w := weights(t, r, kernel.BF16)
		spoil(&w)
		_, err := near.PrepareExperts(w)
		if !errors.Is(err, kernel.ErrArgument) || !strings.Contains(err.Error(), what) {
			t.Errorf("error %v, want %q", err, what)
		}
	}
	w := weights(t, r, kernel.BF16)
	w.Methods = methods(t, "rrrfff", "rrrfff")
	if _, err := (&ref.Device{}).PrepareExperts(w); !errors.Is(err, kernel.ErrUnsupported) {
		t.Errorf("a device without its own memory: error %v", err)
	}
}
