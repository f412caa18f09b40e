package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strings"
	"testing"
	"time"

	"sparrow/internal/device/host"
	"sparrow/internal/device/offload"
	"sparrow/internal/num"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
)

// The tests of this file check these invariants: results of fetched experts are bitwise equal to those of resident
// experts. With experts that the host computes, the result of a row depends only on the row, in launches and in graphs,
// and equals the result of the host's kernels, rounded once. Workers that fail or hang end the pass with an error that
// names them.

// splitBench holds a layer of experts for tests with different placement methods.
type splitBench struct {
	*bench
	weights kernel.ExpertWeights
	host    *offload.Host
	layers  int
}

// slowHost is a CPU device that calls a function before it computes experts.
type slowHost struct {
	*cpu.Device
	before func() error
}

func (d *slowHost) ExpertRows(a kernel.ExpertRowsArgs) error {
	if err := d.before(); err != nil {
		return err
	}
	return d.Device.ExpertRows(a)
}

const (
	splitExpertsCount = 20 // up to 20 experts are fetched, in three groups
	splitHidden       = 512
	splitInner        = 256
	splitTop          = 3
)

func newSplitBench(t *testing.T, kind kernel.DType, o offload.Options, before func() error) *splitBench {
	t.Helper()
	b := &splitBench{bench: onGPU(t)}
	for range splitExpertsCount {
		b.weights.Gate = append(b.weights.Gate, b.expert(kind, splitInner, splitHidden))
		b.weights.Up = append(b.weights.Up, b.expert(kind, splitInner, splitHidden))
		b.weights.Down = append(b.weights.Down, b.expert(kind, splitHidden, splitInner))
	}
	far := &slowHost{cpu.Open(vec.Best(), kernel.Options{Workers: 2}), before}
	h, err := offload.New(far, o)
	b.must(err)
	t.Cleanup(func() { b.must(b.gpu.Sync(), h.Close()) })
	b.host = h
	return b
}

// expert returns a random weight of type kind and shape [out, in].
func (b *splitBench) expert(kind kernel.DType, out, in int) kernel.Weight {
	b.Helper()
	switch kind {
	case kernel.E2M1x2:
		return b.packedWeight(out, in)
	case kernel.E4M3:
		w := kernel.Weight{BlockRows: 128, BlockCols: 128,
			Data:  b.place(b.ref, kernel.E4M3, out, in, nil),
			Scale: b.place(b.ref, kernel.F32, (out+127)/128, (in+127)/128, nil)}
		for i := range host.Bytes(w.Data) {
			host.Bytes(w.Data)[i] = num.E4M3(float32(b.rng.NormFloat64()))
		}
		for i := range host.F32(w.Scale) {
			host.F32(w.Scale)[i] = 1. / 16
		}
		return w
	}
	w := kernel.Weight{Data: b.place(b.ref, kernel.BF16, out, in, nil)}
	for i := range host.U16(w.Data) {
		host.U16(w.Data)[i] = num.BF16(float32(b.rng.NormFloat64() / 16))
	}
	return w
}

// prepare places experts by methods that are given as one letter for each expert: r (resident), c (computed by the
// host) or f (fetched).
func (b *splitBench) prepare(decode, prefill string) kernel.Experts {
	b.Helper()
	var m kernel.ExpertMethods
	method := map[byte]kernel.ExpertMethod{'r': kernel.Resident, 'c': kernel.Computed, 'f': kernel.Fetched}
	for e := range splitExpertsCount {
		m.Decode = append(m.Decode, method[decode[e%len(decode)]])
		m.Prefill = append(m.Prefill, method[prefill[e%len(prefill)]])
	}
	return b.prepareAs(m)
}

// prepareAs places the experts of the layer by the methods m.
func (b *splitBench) prepareAs(m kernel.ExpertMethods) kernel.Experts {
	b.Helper()
	w := b.weights
	w.Methods, w.Shared = m, w.Plain()
	var err error
	w.Host, err = b.host.Prepare(b.layers, w)
	b.must(err)
	b.layers++
	x, err := b.gpu.PrepareExperts(w)
	b.must(err)
	return x
}

// rows returns a batch of n random rows with chosen experts.
func (b *splitBench) rows(n int) kernel.ExpertArgs {
	ids := make([]int32, 0, n*splitTop)
	for range n {
		for _, e := range b.rng.Perm(splitExpertsCount)[:splitTop] {
			ids = append(ids, int32(e))
		}
	}
	return kernel.ExpertArgs{X: b.random(n, splitHidden).gpu, IDs: b.ints(n, splitTop, ids).gpu,
		Weights: b.normal(n, splitTop).gpu, Limit: 7}
}

// run computes rows [from, to) of a batch into zeroed memory and returns the result.
func (b *splitBench) run(x kernel.Experts, a kernel.ExpertArgs, from, to int, post bool) []byte {
	b.Helper()
	out := b.place(b.gpu, kernel.BF16, to-from, splitHidden, nil)
	part := kernel.ExpertArgs{Out: out, X: a.X.Slice(from, to), IDs: a.IDs.Slice(from, to),
		Weights: a.Weights.Slice(from, to), Experts: x, Limit: a.Limit, Prompt: max(min(a.Prompt, to)-from, 0)}
	if post {
		b.must(b.gpu.PostExperts(part))
	}
	b.must(chosenExperts(b.gpu, part))
	return b.bytes(b.gpu, out)
}

var splitKinds = []kernel.DType{kernel.BF16, kernel.E4M3, kernel.E2M1x2}

func TestGPUFetchedExperts(t *testing.T) {
	for _, kind := range splitKinds {
		b := newSplitBench(t, kind, offload.Options{}, func() error { return nil })
		whole, err := b.gpu.PrepareExperts(b.weights)
		b.must(err)
		for _, m := range []string{"rf", "f", "rrrf"} {
			x := b.prepare(m, m)
			for _, n := range []int{1, 7, 64, 200} {
				a := b.rows(n)
				want := b.run(whole, a, 0, n, false)
				for _, prompt := range []int{0, n / 2, n} {
					a.Prompt = prompt
					for range 3 { // the runs reuse the halves of the buffer
						if !bytes.Equal(b.run(x, a, 0, n, false), want) {
							t.Fatalf("%v, %s: %d of %d prompt rows differ from those of resident experts", kind, m,
								prompt, n)
						}
					}
				}
			}
		}
		x := b.prepare("rc", "rf") // fetched from the copy of the host's workers, unless that is bf16
		for _, n := range []int{7, 200} {
			a := b.rows(n)
			want := b.run(whole, a, 0, n, false)
			a.Prompt = n
			for range 5 {
				if !bytes.Equal(b.run(x, a, 0, n, false), want) {
					t.Fatalf("%v: %d prompt rows with the experts of the host differ", kind, n)
				}
			}
		}
	}
}

func TestGPUHostExperts(t *testing.T) {
	for _, kind := range splitKinds {
		b := newSplitBench(t, kind, offload.Options{}, func() error { return nil })
		whole, err := b.gpu.PrepareExperts(b.weights)
		b.must(err)
		for _, m := range []string{"c", "rc", "rcf"} {
			x := b.prepare(m, m)
			const n = 700 // so many rows need two exchanges
			a := b.rows(n)
			a.Prompt = 300
			all, resident := b.run(x, a, 0, n, false), b.run(whole, a, 0, n, false)
			var gap, size float64
			for i := 0; i < len(all); i += 2 {
				v := float64(num.FromBF16(binary.LittleEndian.Uint16(all[i:])))
				w := float64(num.FromBF16(binary.LittleEndian.Uint16(resident[i:])))
				gap, size = gap+(v-w)*(v-w), size+w*w
			}
			limit := 0.01
			if kind != kernel.BF16 {
				limit = 0.06 // the device quantises the rows of FP8 experts
			}
			if e := math.Sqrt(gap / size); !(e < limit) || size == 0 {
				t.Errorf("%v, %s: %.4f away from resident experts", kind, m, e)
			}
			for _, part := range [][2]int{{0, 1}, {299, 300}, {300, 301}, {290, 310}, {650, 700}} {
				for _, post := range []bool{false, true} {
					got := b.run(x, a, part[0], part[1], post)
					if !bytes.Equal(got, all[part[0]*splitHidden*2:part[1]*splitHidden*2]) {
						t.Errorf("%v, %s: rows %v alone differ from those among %d, posted early %v", kind, m, part,
							n, post)
					}
				}
			}
		}
	}
}

// A captured pass exchanges rows with the host every time it is launched, with the current data. In the last case the
// rows are those of a prompt, and experts are fetched from the copy of the host's workers.
func TestGPUSplitGraphs(t *testing.T) {
	b := newSplitBench(t, kernel.E2M1x2, offload.Options{}, func() error { return nil })
	for _, m := range [][2]string{{"rc", "rc"}, {"c", "c"}, {"rcf", "rcf"}, {"f", "f"}, {"rc", "rf"}} {
		x := b.prepare(m[0], m[1])
		const n = 9
		a, other := b.rows(n), b.rows(n)
		if m[0] != m[1] {
			a.Prompt, other.Prompt = n, n
		}
		wants := [2][]byte{b.run(x, a, 0, n, false), b.run(x, other, 0, n, false)}
		live := kernel.ExpertArgs{Out: b.place(b.gpu, kernel.BF16, n, splitHidden, nil),
			X:       b.place(b.gpu, kernel.BF16, n, splitHidden, nil),
			IDs:     b.ints(n, splitTop, make([]int32, n*splitTop)).gpu,
			Weights: b.normal(n, splitTop).gpu, Experts: x, Limit: a.Limit, Prompt: a.Prompt}
		g, err := b.gpu.Capture(func() error {
			return errors.Join(b.gpu.PostExperts(live), chosenExperts(b.gpu,
				live))
		})
		b.must(err)
		for round := range 20 {
			from := [2]kernel.ExpertArgs{a, other}[round%2]
			b.must(b.gpu.Copy(kernel.CopyArgs{Out: live.X, X: from.X}),
				b.gpu.Copy(kernel.CopyArgs{Out: live.Weights, X: from.Weights}),
				b.gpu.Write(live.IDs, b.bytes(b.gpu, from.IDs)),
				b.gpu.Write(live.Out, make([]byte, live.Out.Extent())), g.Launch())
			if !bytes.Equal(b.bytes(b.gpu, live.Out), wants[round%2]) {
				t.Fatalf("%s, round %d: result differs from that of plain launches", m, round)
			}
		}
		b.must(g.Close())
	}
}

// Results of experts that were moved are bitwise equal to those of experts that were placed there from the beginning,
// including in a graph that was captured before the move.
func TestGPUMovedExperts(t *testing.T) {
	for _, kind := range splitKinds {
		b := newSplitBench(t, kind, offload.Options{}, func() error { return nil })
		b.weights.Movable = true
		for _, methods := range [][2]string{{"rc", "rc"}, {"rc", "rf"}, {"rf", "rf"}, {"rcrf", "rcrf"}} {
			const n = 40
			x := b.prepare(methods[0], methods[1])
			a := b.rows(n)
			b.run(x, a, 0, n, true) // this run makes scratch memory grow
			live := a
			live.Out, live.Experts = b.place(b.gpu, kernel.BF16, n, splitHidden, nil), x
			g, err := b.gpu.Capture(func() error {
				return errors.Join(b.gpu.PostExperts(live), chosenExperts(b.gpu,
					live))
			})
			b.must(err)
			m := x.(*experts).split.methods.Clone()
			for range 5 {
				far, near := m.Where(kernel.Computed, kernel.Fetched), m.Where(kernel.Resident)
				in, out := far[b.rng.IntN(len(far))], near[b.rng.IntN(len(near))]
				b.must(b.gpu.SwapExperts(x, in, out), m.Swap(in, out))
			}
			y := b.prepareAs(m)
			for _, prompt := range []int{0, n / 2, n} {
				a.Prompt = prompt
				if !bytes.Equal(b.run(x, a, 0, n, false), b.run(y, a, 0, n, false)) {
					t.Errorf("%v, %v: %d of %d prompt rows differ from those of experts placed so", kind, methods,
						prompt, n)
				}
			}
			a.Prompt = 0
			b.must(b.gpu.Write(live.Out, make([]byte, live.Out.Extent())), g.Launch())
			if !bytes.Equal(b.bytes(b.gpu, live.Out), b.run(y, a, 0, n, false)) {
				t.Errorf("%v, %v: the result of a graph differs from that of experts placed so", kind, methods)
			}
			b.must(g.Close())
		}
	}
}

func TestGPUHostThatFails(t *testing.T) {
	broken := errors.New("a broken bank")
	var fault error
	b := newSplitBench(t, kernel.BF16, offload.Options{}, func() error { return fault })
	x := b.prepare("rc", "rc")
	a := b.rows(5)
	want := b.run(x, a, 0, 5, false)
	fault = broken
	a.Experts, a.Out = x, b.place(b.gpu, kernel.BF16, 5, splitHidden, nil)
	b.must(b.gpu.Do(a))
	err := b.gpu.Sync()
	if !errors.Is(err, broken) || !strings.Contains(err.Error(), "experts in host memory of layer") {
		t.Errorf("%v", err)
	}
	fault = nil
	if !bytes.Equal(b.run(x, a, 0, 5, false), want) {
		t.Error("the result differs after workers that failed")
	}
}

func TestGPUHostThatHangs(t *testing.T) {
	free := make(chan struct{})
	b := newSplitBench(t, kernel.BF16, offload.Options{Timeout: 200 * time.Millisecond}, func() error {
		<-free
		return nil
	})
	t.Cleanup(func() { close(free) })
	a := b.rows(5)
	a.Experts, a.Out = b.prepare("rc", "rc"), b.place(b.gpu, kernel.BF16, 5, splitHidden, nil)
	for range 2 {
		b.must(b.gpu.Do(a))
		if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrLost) ||
			!strings.Contains(fmt.Sprint(err), "did not answer for 200ms") {
			t.Errorf("%v", err)
		}
	}
}
