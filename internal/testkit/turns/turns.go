// Package turns compares the times of several methods to compute the same result on one device, by running them
// alternately.
package turns

import (
	"encoding/binary"
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"sparrow/internal/cuda/op"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/layout"
)

// Bench holds a benchmark and the device on which it runs.
type Bench struct {
	testing.TB
	B   *testing.B
	Dev kernel.Device
	rng *rand.Rand
}

// EachDevice runs a benchmark on the CPU and, if the machine has one, on a GPU.
func EachDevice(b *testing.B, run func(Bench)) {
	for _, list := range [][]kernel.Backend{cpu.Backends(), op.Backends()} {
		b.Run(list[0].Hardware, func(b *testing.B) {
			dev, err := kernel.NewRegistry(list).Open(list[0].Hardware, kernel.Options{})
			if errors.Is(err, kernel.ErrUnavailable) {
				b.Skip(err)
			}
			t := Bench{b, b, dev, rand.New(rand.NewPCG(7, 1))}
			t.Must(err)
			defer dev.Close()
			run(t)
		})
	}
}

// On returns a Bench for another benchmark on this device.
func (t Bench) On(b *testing.B) Bench { return Bench{b, b, t.Dev, t.rng} }

// Must fails the benchmark if err is not nil.
func (t Bench) Must(err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// Fill writes normally distributed values to an activation tensor, float32 on a CPU, bf16 on a GPU. Tensors of equal
// shape get equal values; the values of a large tensor repeat.
func (t Bench) Fill(x kernel.Tensor, size float64) {
	t.Helper()
	v, rng := make([]byte, 0, x.Extent()), rand.New(rand.NewPCG(9, 1))
	for range min(x.Rows*x.Cols, 1<<20+1) {
		if f := float32(rng.NormFloat64() * size); x.DType == kernel.BF16 {
			v = binary.LittleEndian.AppendUint16(v, num.BF16(f))
		} else {
			v = binary.LittleEndian.AppendUint32(v, math.Float32bits(f))
		}
	}
	for n := len(v); int64(len(v)) < x.Extent(); {
		v = append(v, v[:min(int64(n), x.Extent()-int64(len(v)))]...)
	}
	t.Must(t.Dev.Write(x, v))
}

// Pool returns a cache of random rows: the first pages are different, and the others repeat them.
func (t Bench) Pool(kind layout.Kind, pages, tokens, pageBytes int,
	encode func(page []byte, slot int, row []float32)) kernel.Pool {
	t.Helper()
	const distinct = 8
	bytes, row := make([]byte, pages*pageBytes), make([]float32, layout.RowDim)
	for i := range pages {
		to := bytes[i*pageBytes:][:pageBytes]
		if i >= distinct {
			copy(to, bytes[i%distinct*pageBytes:])
			continue
		}
		for slot := range tokens {
			for j := range row {
				row[j] = float32(t.rng.NormFloat64())
			}
			encode(to, slot, row)
		}
	}
	mem, err := kernel.New(t.Dev, kernel.U8, pages, pageBytes)
	t.Must(err)
	t.Must(t.Dev.Write(mem, bytes))
	return kernel.Pool{Mem: mem, Layout: kind, PageTokens: tokens}
}

// Values returns the values of a tensor as float32.
func (t Bench) Values(x kernel.Tensor) []float32 {
	t.Helper()
	b := make([]byte, x.Extent())
	t.Must(t.Dev.Read(b, x))
	out := make([]float32, x.Rows*x.Cols)
	for i := range out {
		if x.DType == kernel.BF16 {
			out[i] = num.FromBF16(binary.LittleEndian.Uint16(b[2*i:]))
		} else {
			out[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
		}
	}
	return out
}

// Same fails the benchmark if the relative L2 difference of two results is more than most.
func (t Bench) Same(what string, a, b []float32, most float64) {
	t.Helper()
	var gap, size float64
	for i := range a {
		d := float64(a[i]) - float64(b[i])
		gap, size = gap+d*d, size+float64(a[i])*float64(a[i])
	}
	if !(math.Sqrt(gap) <= most*math.Sqrt(size)) || size == 0 {
		t.Fatalf("%s: the L2 norm of the difference is %g, that of the result %g", what, math.Sqrt(gap),
			math.Sqrt(size))
	}
}

// Form is one method to compute a result.
type Form struct {
	Name string
	Run  func() error // enqueues the computation once
}

// Time runs forms alternately, so that other load of the machine affects all forms equally, and returns the median time
// of each.
func (t Bench) Time(forms ...Form) []time.Duration {
	t.Helper()
	times := make([][]time.Duration, len(forms))
	for _, f := range forms {
		t.Once(f)
	}
	for t.B.Loop() {
		for i, f := range forms {
			times[i] = append(times[i], t.Once(f))
		}
	}
	out := make([]time.Duration, len(forms))
	for i, list := range times {
		slices.Sort(list)
		out[i] = list[len(list)/2]
	}
	return out
}

// Once returns the time of a form. On a device with graphs, it is measured in a captured graph.
func (t Bench) Once(f Form) time.Duration {
	t.Helper()
	run, each := f.Run, 1
	if c, ok := t.Dev.(kernel.Capturer); ok {
		const recorded, launched = 8, 3 // number of launches in a graph, and number of launches of the graph in a run
		t.Must(f.Run())                 // allocates the memory that the operations need
		g, err := c.Capture(func() error {
			for range recorded {
				if err := f.Run(); err != nil {
					return err
				}
			}
			return nil
		})
		t.Must(err)
		defer func() { t.Must(g.Close()) }()
		t.Must(g.Launch())
		t.Must(t.Dev.Sync())
		run, each = func() error { return errors.Join(g.Launch(), g.Launch(), g.Launch()) }, recorded*launched
	}
	begin := time.Now()
	t.Must(run())
	t.Must(t.Dev.Sync())
	return time.Since(begin) / time.Duration(each)
}

// Report prints the time of each form in microseconds, and the ratio of the first time to the second.
func (t Bench) Report(times []time.Duration, forms ...Form) {
	for i, f := range forms {
		t.B.ReportMetric(float64(times[i].Nanoseconds())/1e3, f.Name+"-us")
	}
	t.B.ReportMetric(float64(times[0])/float64(times[1]), forms[0].Name+"/"+forms[1].Name)
	t.B.ReportMetric(0, "ns/op")
}
