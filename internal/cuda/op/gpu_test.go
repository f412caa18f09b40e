package op

import (
	"encoding/binary"
	"errors"
	flags "flag"
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"sparrow/internal/num"
	"sparrow/internal/testkit"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

// both holds the same values on the reference, as float32, and on the GPU.
type both struct{ ref, gpu kernel.Tensor }

// bench runs the same operation on the reference and on the GPU.
type bench struct {
	*testing.T
	rng *rand.Rand
	ref *ref.Device
	gpu *Device
}

// portableTier runs the tests with the portable kernels, on any GPU that supports them; smallCard also limits the GPU
// to the resources of a card of 24 GB.
var (
	portableTier = flags.Bool("portable", false, "run tests on a GPU with the portable kernels")
	smallCard    = flags.Bool("small", false, "limit the GPU to 22 GiB and 99 KiB of shared memory a block")
)

// onGPU opens the first device, or skips the test with one line.
func onGPU(t *testing.T) *bench {
	t.Helper()
	ready := cuda.Available
	if *portableTier {
		ready = cuda.PortableAvailable
	}
	var limits kernel.Limits
	if *smallCard {
		limits = kernel.Limits{Memory: 22 << 30, Shared: 99 << 10}
	}
	if err := ready(); err != nil {
		t.Skipf("needs a GPU: %v", err)
	}
	d, err := opened(cuda.OpenLimited(0, *portableTier, limits))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return &bench{t, rand.New(rand.NewPCG(5, 6)), &ref.Device{Rounded: true}, d}
}

func (b *bench) must(errs ...error) {
	b.Helper()
	if err := errors.Join(errs...); err != nil {
		b.Fatal(err)
	}
}

func (b *bench) place(d kernel.Device, t kernel.DType, rows, cols int, bytes []byte) kernel.Tensor {
	b.Helper()
	x, err := kernel.New(d, t, rows, cols)
	b.must(err)
	b.must(d.Write(x, bytes))
	return x
}

// floats returns a float32 tensor with the values v on both devices.
func (b *bench) floats(rows, cols int, v []float32) both {
	var bytes []byte
	for _, x := range v {
		bytes = binary.LittleEndian.AppendUint32(bytes, math.Float32bits(x))
	}
	return both{b.place(b.ref, kernel.F32, rows, cols, bytes), b.place(b.gpu, kernel.F32, rows, cols, bytes)}
}

// random returns random bf16 values, stored as float32 on the reference and as bf16 on the GPU.
func (b *bench) random(rows, cols int) both {
	return b.rounded(rows, cols, func(int) float32 { return float32(b.rng.NormFloat64()) })
}

// rounded returns values rounded to bf16, stored as float32 on the reference and as bf16 on the GPU.
func (b *bench) rounded(rows, cols int, value func(i int) float32) both {
	var wide, narrow []byte
	for i := range rows * cols {
		h := num.BF16(value(i))
		narrow = binary.LittleEndian.AppendUint16(narrow, h)
		wide = binary.LittleEndian.AppendUint32(wide, uint32(h)<<16)
	}
	return both{b.place(b.ref, kernel.F32, rows, cols, wide), b.place(b.gpu, kernel.BF16, rows, cols, narrow)}
}

func (b *bench) normal(rows, cols int) both {
	v := make([]float32, rows*cols)
	for i := range v {
		v[i] = float32(b.rng.NormFloat64())
	}
	return b.floats(rows, cols, v)
}

func (b *bench) ints(rows, cols int, v []int32) both {
	var bytes []byte
	for _, x := range v {
		bytes = binary.LittleEndian.AppendUint32(bytes, uint32(x))
	}
	return both{b.place(b.ref, kernel.I32, rows, cols, bytes), b.place(b.gpu, kernel.I32, rows, cols, bytes)}
}

// angles returns the rotation angles of odd positions on both devices.
func (b *bench) angles(rows int) both {
	v := make([]float32, 0, rows*layout.RopeDim)
	for r := range rows {
		for part := range 2 {
			for i := range layout.RopeDim / 2 {
				s, c := math.Sincos(float64(37*r+1) * math.Pow(10000, -float64(2*i)/layout.RopeDim))
				v = append(v, float32([2]float64{c, s}[part]))
			}
		}
	}
	return b.floats(rows, layout.RopeDim, v)
}

// pools returns two caches with the same bytes, one on the reference and one on the GPU.
func (b *bench) pools(kind layout.Kind, pages, pageBytes, tokens int, bytes []byte) (onRef, onGPU kernel.Pool) {
	return kernel.Pool{Mem: b.place(b.ref, kernel.U8, pages, pageBytes, bytes), Layout: kind, PageTokens: tokens},
		kernel.Pool{Mem: b.place(b.gpu, kernel.U8, pages, pageBytes, bytes), Layout: kind, PageTokens: tokens}
}

func (b *bench) bytes(d kernel.Device, t kernel.Tensor) []byte {
	b.Helper()
	v := make([]byte, t.Extent())
	b.must(d.Read(v, t))
	return v
}

// toBF16 is the tolerance for results that are float32 on the reference: bf16 rounds values by up to 2^-8 of their
// magnitude, and rows with a relative L2 error of up to 0.0026.
const toBF16 = 1. / 128

// near compares float tensors row by row (testkit.Near).
func (b *bench) near(what string, x both, tol float64) {
	b.Helper()
	b.nearByHead(what, x, 1, tol)
}

// nearByHead compares the attention outputs of both devices for each head of a row separately.
func (b *bench) nearByHead(what string, x both, heads int, tol float64) {
	b.Helper()
	want, got := b.bytes(b.ref, x.ref), b.bytes(b.gpu, x.gpu)
	w, g := make([]float64, len(want)/4), make([]float64, len(want)/4)
	for i := range w {
		w[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(want[4*i:])))
		if x.gpu.DType == kernel.BF16 {
			g[i] = float64(num.FromBF16(binary.LittleEndian.Uint16(got[2*i:])))
		} else {
			g[i] = float64(math.Float32frombits(binary.LittleEndian.Uint32(got[4*i:])))
		}
	}
	if value, noise, err := testkit.Near(g, w, x.ref.Cols/heads, tol); err != nil {
		b.Errorf("%s: %v; of what is allowed, a value takes %.2f and a row %.2f", what, err, value, noise)
	} else if testing.Verbose() {
		b.Logf("%s: of %.2g, a value takes %.2f and a row %.2f", what, tol, value, noise)
	}
}

// same checks that two tensors have equal bytes.
func (b *bench) same(what string, onRef, onGPU kernel.Tensor) {
	b.Helper()
	want, got := b.bytes(b.ref, onRef), b.bytes(b.gpu, onGPU)
	for i := range want {
		if want[i] != got[i] {
			b.Fatalf("%s: byte %d is %#02x, the reference gives %#02x", what, i, got[i], want[i])
		}
	}
}

// fewDiffer checks that only a few bytes of quantised values differ: a value at a rounding boundary may round to either
// side.
func (b *bench) fewDiffer(what string, onRef, onGPU kernel.Tensor) {
	b.Helper()
	want, got := b.bytes(b.ref, onRef), b.bytes(b.gpu, onGPU)
	differ := 0
	for i := range want {
		if want[i] != got[i] {
			differ++
		}
	}
	if differ > len(want)/50 {
		b.Fatalf("%s: %d of %d bytes differ from the reference", what, differ, len(want))
	}
}

// scattered holds slots in 3 pages of 64 tokens; -1 is padding.
var scattered = []int32{130, 0, 63, 64, -1, 127, 191, 1, 65}

func TestGPUNorm(t *testing.T) {
	b := onGPU(t)
	for _, cols := range []int{1, 31, 512, 1536, 7168} {
		x, w, out := b.random(5, cols), b.normal(1, cols), b.random(5, cols)
		b.must(b.ref.Do(kernel.NormArgs{Out: out.ref, X: x.ref, Weight: w.ref, Eps: 1e-6}),
			b.gpu.Do(kernel.NormArgs{Out: out.gpu, X: x.gpu, Weight: w.gpu, Eps: 1e-6}))
		b.near(fmt.Sprintf("%d columns", cols), out, toBF16)
	}
}

func TestGPURows(t *testing.T) {
	b := onGPU(t)
	n := len(scattered)
	for _, kind := range latents {
		l, err := layout.MainOf(kind)
		b.must(err)
		kv, a, norm, slots := b.random(n, layout.Width(kind)), b.angles(n), b.normal(1, layout.LatentDim),
			b.ints(n, 1, scattered)
		onRef, onGPU := b.pools(kind, 3, l.PageBytes(64), 64, make([]byte, 3*l.PageBytes(64)))
		b.must(b.ref.Do(kernel.StoreArgs{KV: kv.ref, Norm: norm.ref, Eps: 1e-6, Angles: a.ref, Slots: slots.ref,
			Pool: onRef}),
			b.gpu.Do(kernel.StoreArgs{KV: kv.gpu, Norm: norm.gpu, Eps: 1e-6, Angles: a.gpu, Slots: slots.gpu,
				Pool: onGPU}))
		read := []int32{130, 0, 63, 64, 127, 191, 1, 65, 2}
		at, out := b.ints(len(read), 1, read), b.random(len(read), layout.Width(kind))
		b.must(b.ref.Do(kernel.GatherArgs{Out: out.ref, Slots: at.ref, Pool: onRef}),
			b.gpu.Do(kernel.GatherArgs{Out: out.gpu, Slots: at.gpu, Pool: onGPU}))
		tol := 1. / 8 // one step of e4m3
		if kind == layout.BF16Row1152 || kind == layout.BF16Row1024 {
			tol = 1. / 64
		}
		b.near("stored and gathered "+kind.String(), out, tol)
		// The GPU reads the rows of the reference from a copy of the reference's bytes.
		_, copied := b.pools(kind, 3, l.PageBytes(64), 64, b.bytes(b.ref, onRef.Mem))
		b.must(b.gpu.Do(kernel.GatherArgs{Out: out.gpu, Slots: at.gpu, Pool: copied}))
		b.near("gathered "+kind.String(), out, 1./256)
	}
	slots, kv := b.ints(1, 1, []int32{192}), b.random(1, layout.RowDim)
	_, pool := b.pools(layout.BF16Row1152, 3, 64*layout.BF16RowBytes, 64, nil)
	b.must(b.gpu.Do(kernel.StoreArgs{KV: kv.gpu, Norm: b.normal(1, layout.LatentDim).gpu, Eps: 1e-6,
		Angles: b.angles(1).gpu, Slots: slots.gpu, Pool: pool}))
	if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a slot beyond the pool: %v, want ErrArgument at the next sync", err)
	}
	b.must(b.gpu.Sync())
}

func TestGPUConvertPages(t *testing.T) {
	b := onGPU(t)
	raw := layout.FP8Raw{}
	bytes := make([]byte, 3*raw.PageBytes(64))
	for i := range bytes {
		bytes[i] = num.E4M3(float32(b.rng.NormFloat64() * 10))
	}
	inRef, inGPU := b.pools(layout.FP8Row576, 3, raw.PageBytes(64), 64, bytes)
	outRef, outGPU := b.pools(layout.FP8Row656, 2, layout.FP8Block{}.PageBytes(64), 64, nil)
	pages := b.ints(2, 1, []int32{2, 0})
	b.must(b.ref.Do(kernel.ConvertArgs{Out: outRef, In: inRef, Pages: pages.ref}),
		b.gpu.Do(kernel.ConvertArgs{Out: outGPU, In: inGPU, Pages: pages.gpu}))
	b.same("converted", outRef.Mem, outGPU.Mem)
}

func TestGPUEntries(t *testing.T) {
	b := onGPU(t)
	n, l := len(scattered), layout.V4Packed{}
	rows, a, norm, slots := b.random(n, layout.V4Dim), b.angles(n), b.normal(1, layout.V4Dim), b.ints(n, 1, scattered)
	onRef, onGPU := b.pools(layout.V4Row584, 3, l.PageBytes(64), 64, nil)
	b.must(b.ref.Do(kernel.EntryStoreArgs{Rows: rows.ref, Norm: norm.ref, Eps: 1e-6, Angles: a.ref,
		Slots: slots.ref, Pool: onRef}),
		b.gpu.Do(kernel.EntryStoreArgs{Rows: rows.gpu, Norm: norm.gpu, Eps: 1e-6, Angles: a.gpu,
			Slots: slots.gpu, Pool: onGPU}))
	out := b.random(n, layout.V4Dim)
	b.must(b.ref.Do(kernel.UnpackArgs{Out: out.ref, Slots: slots.ref, Pool: onRef}),
		b.gpu.Do(kernel.UnpackArgs{Out: out.gpu, Slots: slots.gpu, Pool: onGPU}))
	b.near("stored and unpacked", out, 1./8)
	_, copied := b.pools(layout.V4Row584, 3, l.PageBytes(64), 64, b.bytes(b.ref, onRef.Mem))
	b.must(b.gpu.Do(kernel.UnpackArgs{Out: out.gpu, Slots: slots.gpu, Pool: copied}))
	b.near("unpacked", out, 0)
}

// putFloat writes v as element i of memory with element type kind.
func putFloat(to []byte, kind kernel.DType, i int, v float32) {
	switch kind {
	case kernel.F32:
		binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(v))
	case kernel.BF16:
		binary.LittleEndian.PutUint16(to[2*i:], num.BF16(v))
	case kernel.F16:
		binary.LittleEndian.PutUint16(to[2*i:], num.F16(v))
	}
}
