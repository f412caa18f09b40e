package ref_test

import (
	"encoding/binary"
	"math"
	"slices"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/ref"
	"sparrow/layout"
)

// bench is a reference device with short methods that make tensors.
type bench struct {
	*testing.T
	ref.Device
}

func newBench(t *testing.T) *bench { return &bench{T: t} }

// run checks and runs an operation.
func (b *bench) run(op kernel.Op) error { return kernel.Do(&b.Device, op) }

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// f32 returns a tensor [rows, cols] with the values v; without values it is zero.
func (b *bench) f32(rows, cols int, v ...float32) kernel.Tensor {
	b.Helper()
	t, err := kernel.New(&b.Device, kernel.F32, rows, cols)
	b.must(err)
	b.must(kernel.WriteF32(&b.Device, t, v))
	return t
}

func (b *bench) i32(rows, cols int, v ...int32) kernel.Tensor {
	b.Helper()
	t, err := kernel.New(&b.Device, kernel.I32, rows, cols)
	b.must(err)
	b.must(kernel.WriteI32(&b.Device, t, v))
	return t
}

// weight returns a float32 weight [out, in] with the values v.
func (b *bench) weight(out, in int, v ...float32) kernel.Weight {
	b.Helper()
	return kernel.Weight{Data: b.f32(out, in, v...)}
}

// prepare returns the matrix that the reference prepares from a weight.
func (b *bench) prepare(w kernel.Weight, role kernel.Role) kernel.Matrix {
	b.Helper()
	m, err := b.Prepare(w, role)
	b.must(err)
	return m
}

// experts returns the experts that the reference prepares from weights.
func (b *bench) experts(gate, up, down []kernel.Weight) kernel.Experts {
	b.Helper()
	x, err := b.PrepareExperts(kernel.ExpertWeights{Gate: gate, Up: up, Down: down})
	b.must(err)
	return x
}

// mainPool returns a zeroed cache of latent rows.
func (b *bench) mainPool(k layout.Kind, pages, tokens int) kernel.Pool {
	b.Helper()
	l, err := layout.MainOf(k)
	b.must(err)
	return b.pool(k, l.PageBytes(tokens), pages, tokens)
}

// indexPool returns a zeroed cache of indexer keys.
func (b *bench) indexPool(k layout.Kind, pages, tokens int) kernel.Pool {
	b.Helper()
	l, err := layout.IndexOf(k)
	b.must(err)
	return b.pool(k, l.PageBytes(tokens), pages, tokens)
}

func (b *bench) pool(k layout.Kind, pageBytes, pages, tokens int) kernel.Pool {
	b.Helper()
	t, err := kernel.New(&b.Device, kernel.U8, pages, pageBytes)
	b.must(err)
	return kernel.Pool{Mem: t, Layout: k, PageTokens: tokens}
}

func (b *bench) near(what string, got []float32, want ...float64) {
	b.Helper()
	if len(got) != len(want) {
		b.Fatalf("%s: %d values, want %d", what, len(got), len(want))
	}
	for i := range want {
		if d := math.Abs(float64(got[i]) - want[i]); !(d <= 1e-6*max(1, math.Abs(want[i]))) {
			b.Errorf("%s: value %d is %v, want %v", what, i, got[i], want[i])
		}
	}
}

func (b *bench) ints(what string, got []int32, want ...int32) {
	b.Helper()
	if !slices.Equal(got, want) {
		b.Errorf("%s: %v, want %v", what, got, want)
	}
}

// For the first row, mean(x²) = (9+16)/2 = 12.5. With eps 12.5 the root is 5, so x/5 * w is 0.6*10 and -0.8*0.5. The
// second row is zero: rsqrt(0 + eps) is finite.
func TestNorm(t *testing.T) {
	b := newBench(t)
	out := b.f32(2, 2)
	b.must(b.run(kernel.NormArgs{Out: out, X: b.f32(2, 2, 3, -4, 0, 0), Weight: b.f32(1, 2, 10, 0.5), Eps: 12.5}))
	b.near("norm", host.F32(out), 6, -0.4, 0, 0)
}

// noRotation returns angle 0 (cosine 1, sine 0) for every pair.
func (b *bench) noRotation(rows int) kernel.Tensor {
	b.Helper()
	t := b.f32(rows, layout.RopeDim)
	for r := range rows {
		for i := range layout.RopeDim / 2 {
			host.RowF32(t, r)[i] = 1
		}
	}
	return t
}

// The indexer's key norm is a LayerNorm with bias. Half of 128 values are 5 and half are 1, so the mean is 3 and the
// variance is 4. With eps 0 the normalised values are +1 and -1; times weight 2 plus bias 0.25 they are 2.25 and -1.75.
// RMSNorm would give 5/sqrt(13) and 1/sqrt(13) instead.
func TestIndexKeyIsLayerNormalisedWithBias(t *testing.T) {
	b := newBench(t)
	key, w, bias := b.f32(1, 128), b.f32(1, 128), b.f32(1, 128)
	for i := range 128 {
		host.F32(key)[i] = 1 + 4*float32(i%2)
		host.F32(w)[i], host.F32(bias)[i] = 2, 0.25
	}
	pool := b.indexPool(layout.IndexF32Row512, 1, 4)
	b.must(b.run(kernel.IndexStoreArgs{Key: key, Weight: w, Bias: bias, Eps: 0, Angles: b.noRotation(1),
		Pairing: kernel.HalfSplit, Slots: b.i32(1, 1, 2), Pool: pool}))
	got := make([]float32, 128)
	layout.IndexF32{}.Decode(got, host.Page(pool, 0), 4, 2)
	for i, v := range got {
		want := -1.75
		if i%2 == 1 {
			want = 2.25
		}
		if math.Abs(float64(v)-want) > 1e-6 {
			t.Fatalf("value %d is %v, want %v", i, v, want)
		}
	}
}

// A slot below zero is padding: no store operation writes anything for it.
func TestPaddingIsNotStored(t *testing.T) {
	b := newBench(t)
	index, main := b.indexPool(layout.IndexPage132, 1, 4), b.mainPool(layout.FP8Row656, 1, 4)
	one := func(n int) kernel.Tensor { return b.f32(1, n, slices.Repeat([]float32{1}, n)...) }
	b.must(b.run(kernel.IndexStoreArgs{Key: one(128), Weight: one(128), Bias: one(128), Eps: 1,
		Angles: b.noRotation(1), Pairing: kernel.HalfSplit, Slots: b.i32(1, 1, -1), Pool: index}))
	b.must(b.run(kernel.StoreArgs{KV: one(576), Norm: one(512), Eps: 1, Angles: b.noRotation(1),
		Slots: b.i32(1, 1, -1), Pool: main}))
	for _, p := range []kernel.Pool{index, main} {
		for i, v := range host.Page(p, 0) {
			if v != 0 {
				t.Fatalf("%v: byte %d is %d after a padded row", p.Layout, i, v)
			}
		}
	}
}

// Token 130 of an index cache is in page 2: its key is at byte 2*8448 + (130-128)*128 = 17152 and its scale at 2*8448 +
// 8192 + 2*4 = 25096 (v32 spec, 5.4). LayerNorm does not change alternating +1 and -1, and weight 3 gives ±3. 3/448 =
// 0.0067 rounds up to the scale 2^-7, and 3 * 128 = 384 is representable.
func TestIndexPageAddresses(t *testing.T) {
	b := newBench(t)
	key, w := b.f32(1, 128), b.f32(1, 128)
	for i := range 128 {
		host.F32(key)[i] = 1 - 2*float32(i%2)
		host.F32(w)[i] = 3
	}
	pool := b.indexPool(layout.IndexPage132, 3, 64)
	b.must(b.run(kernel.IndexStoreArgs{Key: key, Weight: w, Bias: b.f32(1, 128), Eps: 0, Angles: b.noRotation(1),
		Pairing: kernel.HalfSplit, Slots: b.i32(1, 1, 130), Pool: pool}))
	mem := host.Bytes(pool.Mem)
	if got := num.FromE4M3(mem[17152]); got != 384 {
		t.Errorf("key byte 17152 means %v, want 384", got)
	}
	if got := num.FromE4M3(mem[17152+127]); got != -384 {
		t.Errorf("key byte %d means %v, want -384", 17152+127, got)
	}
	if got := math.Float32frombits(binary.LittleEndian.Uint32(mem[25096:])); got != 1.0/128 {
		t.Errorf("scale at byte 25096 is %v, want 2^-7", got)
	}
	for i, v := range mem {
		inside := i >= 17152 && i < 17152+128 || i >= 25096 && i < 25100
		if !inside && v != 0 {
			t.Fatalf("byte %d is %d, only token 130 was stored", i, v)
		}
	}
}

// Only the 512 latent values are normalised. The rope part is rotated in interleaved pairs and stored after them. Norm:
// mean(x²) = 4 with eps 0, so 2 becomes 1, times weight 0.5. Rope: pair 0 is (3, 4), which a rotation by 90 degrees
// makes (-4, 3). In 656-byte rows the scale of tile 0 is at byte 512, and rope element r is at 528 + 2r (v32 spec,
// 11.6).
func TestStoreRows(t *testing.T) {
	b := newBench(t)
	kv, norm := b.f32(1, 576), b.f32(1, 512)
	for i := range 512 {
		host.F32(kv)[i], host.F32(norm)[i] = 2, 0.5
	}
	host.F32(kv)[512], host.F32(kv)[513], host.F32(kv)[514] = 3, 4, 7
	angles := b.noRotation(1)
	host.F32(angles)[0], host.F32(angles)[32] = 0, 1
	pool := b.mainPool(layout.FP8Row656, 2, 3)
	b.must(b.run(kernel.StoreArgs{KV: kv, Norm: norm, Eps: 0, Angles: angles, Slots: b.i32(1, 1, 4), Pool: pool}))
	row := host.Page(pool, 1)[656:][:656] // slot 4 is token 1 of page 1
	scale := math.Float32frombits(binary.LittleEndian.Uint32(row[512:]))
	if got := num.FromE4M3(row[0]) * scale; got != 0.5 {
		t.Errorf("latent value 0 is %v, want 0.5", got)
	}
	for r, want := range []float32{-4, 3, 7} {
		if got := num.FromBF16(binary.LittleEndian.Uint16(row[528+2*r:])); got != want {
			t.Errorf("rope element %d is %v, want %v", r, got, want)
		}
	}
}
