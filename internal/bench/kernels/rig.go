package kernels

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/rand/v2"

	"sparrow/internal/block"
	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// Rig makes tensors in host memory. It stores the first error until failed is called.
type Rig struct {
	mem      host.Memory
	rng      *rand.Rand
	bigBytes int
	big      []byte
	bigType  kernel.DType // type of the values that fill big
	err      error
}

func newRig(bigBytes int) *Rig { return &Rig{rng: rand.New(rand.NewPCG(5, 1)), bigBytes: bigBytes} }

// failed returns the first error since the last call.
func (r *Rig) failed() error {
	err := r.err
	r.err = nil
	return err
}

func (r *Rig) keep(err error) {
	if r.err == nil {
		r.err = err
	}
}

// empty returns a tensor [rows, cols] of zeros.
func (r *Rig) empty(d kernel.DType, rows, cols int) kernel.Tensor {
	t, err := kernel.New(r.mem, d, rows, cols)
	r.keep(err)
	return t
}

// normal returns a float32 tensor of normally distributed values with standard deviation size.
func (r *Rig) normal(rows, cols int, size float64) kernel.Tensor {
	t := r.empty(kernel.F32, rows, cols)
	repeat(host.F32(t), func() float32 { return float32(r.rng.NormFloat64() * size) })
	return t
}

// period is the number of random values of a large tensor; the rest repeats them. It is not a multiple of a row's
// length, so that rows differ.
const period = 1<<16 + 1

// repeat fills the first period values of v with draw, and the rest with copies of them.
func repeat[T any](v []T, draw func() T) {
	n := min(period, len(v))
	for i := range n {
		v[i] = draw()
	}
	for ; n < len(v); n *= 2 {
		copy(v[n:], v[:n])
	}
}

// ints returns an int32 tensor whose element i is f(i).
func (r *Rig) ints(rows, cols int, f func(i int) int32) kernel.Tensor {
	t := r.empty(kernel.I32, rows, cols)
	for i, v := 0, host.I32(t); i < len(v); i++ {
		v[i] = f(i)
	}
	return t
}

// constant returns a tensor [rows, 1] whose elements are v.
func (r *Rig) constant(rows, v int) kernel.Tensor {
	return r.ints(rows, 1, func(int) int32 { return int32(v) })
}

// angles returns cosines and sines of random angles, [rows, 64].
func (r *Rig) angles(rows int) kernel.Tensor {
	t := r.empty(kernel.F32, rows, layout.RopeDim)
	for i := range rows {
		row := host.RowF32(t, i)
		for j := range layout.RopeDim / 2 {
			s, c := math.Sincos(r.rng.Float64() * 6)
			row[j], row[j+layout.RopeDim/2] = float32(c), float32(s)
		}
	}
	return t
}

// weight returns a random matrix [out, in] of the given type, with scales if the type has them.
func (r *Rig) weight(d kernel.DType, out, in int) kernel.Weight {
	if f, ok := d.Block(); ok {
		t := r.empty(d, out, in/f.Values())
		r.fillBlocks(host.Bytes(t), f)
		return kernel.Weight{Data: t}
	}
	switch d {
	case kernel.F32:
		return kernel.Weight{Data: r.normal(out, in, 1/math.Sqrt(float64(in)))}
	case kernel.BF16:
		t := r.empty(d, out, in)
		repeat(host.U16(t), func() uint16 { return num.BF16(float32(r.rng.NormFloat64() / math.Sqrt(float64(in)))) })
		return kernel.Weight{Data: t}
	case kernel.E4M3:
		t := r.empty(d, out, in)
		repeat(host.Bytes(t), r.code)
		return r.blocks(t, out, in)
	case kernel.E2M1x2:
		t := r.empty(d, out, in/2)
		repeat(host.Bytes(t), func() byte { return byte(r.rng.Uint32()) })
		return r.groups(t, out, in)
	}
	r.keep(fmt.Errorf("random weights of type %v are not supported", d))
	return kernel.Weight{}
}

// codeSize is the standard deviation of e4m3 codes in checkpoints, whose blocks of 128 x 128 are scaled to a maximum of
// 448.
const codeSize = 448 / 4.1

// code returns a random e4m3 code. One in ten thousand is zero or subnormal, which may be slower.
func (r *Rig) code() byte {
	return num.E4M3(float32(max(-448, min(r.rng.NormFloat64()*codeSize, 448))))
}

// blocks returns a weight with the e4m3 codes t and random block scales.
func (r *Rig) blocks(t kernel.Tensor, out, in int) kernel.Weight {
	s := r.empty(kernel.F32, (out+127)/128, (in+127)/128)
	for i, v := 0, host.F32(s); i < len(v); i++ {
		v[i] = (1 + r.rng.Float32()) / codeSize / float32(math.Sqrt(float64(in)))
	}
	return kernel.Weight{Data: t, Scale: s, BlockRows: 128, BlockCols: 128}
}

// groups returns a weight with the e2m1 codes t and random group scales.
func (r *Rig) groups(t kernel.Tensor, out, in int) kernel.Weight {
	s := r.empty(kernel.E8M0, out, in/32)
	repeat(host.Bytes(s), func() byte { return 119 + byte(r.rng.IntN(4)) })
	return kernel.Weight{Data: t, Scale: s, BlockRows: 1, BlockCols: 32}
}

// dram returns a weight with in columns that fills the memory big. All such weights share this memory, so a new type
// overwrites the previous one.
func (r *Rig) dram(d kernel.DType, in int) kernel.Weight {
	if r.big == nil {
		r.big = make([]byte, r.bigBytes)
	}
	if d != r.bigType {
		r.fillBig(d)
	}
	cols := in / d.Values()
	out := len(r.big) / d.Size() / cols / 128 * 128
	t := kernel.Tensor{Buf: kernel.HostBuffer(r.big), DType: d, Rows: out, Cols: cols, Stride: cols}
	switch d {
	case kernel.E4M3:
		return r.blocks(t, out, in)
	case kernel.E2M1x2:
		return r.groups(t, out, in)
	}
	return kernel.Weight{Data: t}
}

// fillBig fills the memory big with random values of type d.
func (r *Rig) fillBig(d kernel.DType) {
	r.bigType = d
	if f, ok := d.Block(); ok {
		r.fillBlocks(r.big, f)
		return
	}
	switch d {
	case kernel.E4M3:
		repeat(r.big, r.code)
	case kernel.E2M1x2:
		repeat(r.big, func() byte { return byte(r.rng.Uint32()) })
	case kernel.BF16:
		t := make([]byte, 2*period)
		for i := 0; i < len(t); i += 2 {
			binary.LittleEndian.PutUint16(t[i:], num.BF16(float32(r.rng.NormFloat64())))
		}
		for n := 0; n < len(r.big); n += len(t) {
			copy(r.big[n:], t)
		}
	default:
		r.keep(fmt.Errorf("weights of type %v are not supported in DRAM cases", d))
	}
}

// fillBlocks fills memory with a few random blocks of a format, repeated.
func (r *Rig) fillBlocks(b []byte, f block.Format) {
	n := min(len(b), period*f.Bytes()) / f.Bytes() * f.Bytes()
	f.Random(b[:n], r.rng)
	for ; n > 0 && n < len(b); n *= 2 {
		copy(b[n:], b[:n])
	}
}

// distinct is the number of different pages of a cache; the other pages are copies at other addresses.
const distinct = 8

// mainPool returns a KV cache of random latent rows for the given number of tokens.
func (r *Rig) mainPool(k layout.Kind, tokens int) kernel.Pool {
	const page = 64
	l, err := layout.MainOf(k)
	if err != nil {
		r.keep(err)
		return kernel.Pool{}
	}
	n := l.PageBytes(page)
	return r.pool(k, (tokens+page-1)/page, page, n, func(b []byte, slot int) {
		l.Encode(b, slot, r.values(layout.RowDim))
	})
}

// indexPool returns an indexer cache of random keys for the given number of tokens.
func (r *Rig) indexPool(kind layout.Kind, tokens int) kernel.Pool {
	const page = 64
	l, err := layout.IndexOf(kind)
	if err != nil {
		r.keep(err)
		return kernel.Pool{}
	}
	n := l.PageBytes(page)
	return r.pool(kind, (tokens+page-1)/page, page, n, func(b []byte, slot int) {
		l.Encode(b, page, slot, r.values(layout.IndexDim))
	})
}

func (r *Rig) pool(k layout.Kind, pages, tokens, pageBytes int, encode func(page []byte, slot int)) kernel.Pool {
	p := kernel.Pool{Mem: r.empty(kernel.U8, pages, pageBytes), Layout: k, PageTokens: tokens}
	b := host.Bytes(p.Mem)
	for i := range pages {
		to := b[i*pageBytes:][:pageBytes]
		if i >= distinct {
			copy(to, b[(i%distinct)*pageBytes:])
			continue
		}
		for slot := range tokens {
			encode(to, slot)
		}
	}
	return p
}

// values returns n normally distributed values.
func (r *Rig) values(n int) []float32 {
	v := make([]float32, n)
	for i := range v {
		v[i] = float32(r.rng.NormFloat64())
	}
	return v
}
