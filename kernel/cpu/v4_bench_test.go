package cpu_test

import (
	"bytes"
	"errors"
	"testing"

	"sparrow/internal/device/host"
	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/kernel/cpu"
	"sparrow/layout"
)

func tensorOf(b *testing.B, d kernel.Device, t kernel.DType, rows, cols int) kernel.Tensor {
	b.Helper()
	x, err := kernel.New(d, t, rows, cols)
	if err != nil {
		b.Fatal(err)
	}
	return x
}

func ints(b *testing.B, d kernel.Device, rows, cols int, v func(i int) int32) kernel.Tensor {
	b.Helper()
	list := make([]int32, rows*cols)
	for i := range list {
		list[i] = v(i)
	}
	t := tensorOf(b, d, kernel.I32, rows, cols)
	if err := kernel.WriteI32(d, t, list); err != nil {
		b.Fatal(err)
	}
	return t
}

// BenchmarkDualAttend measures a decode batch of 8 rows of DeepSeek-V4-Flash: 64 heads over 128 window entries and 512
// selected entries. Bytes per operation are the size of the entries.
func BenchmarkDualAttend(b *testing.B) {
	d := cpu.Open(vec.Best(), kernel.Options{})
	defer d.Close()
	const rows, heads, window, extra = 8, 64, 128, 512
	var l layout.V4Packed
	stream := func(entries, n int) kernel.Stream {
		pool := kernel.Pool{Mem: tensorOf(b, d, kernel.U8, 64, l.PageBytes(entries)), Layout: layout.V4Row584,
			PageTokens: entries}
		v := make([]float32, layout.V4Dim)
		for slot := range pool.Slots() {
			for i := range v {
				v[i] = float32((slot*31+i*7)%17) - 8
			}
			l.Encode(host.Page(pool, slot/entries), entries, slot%entries, v)
		}
		return kernel.Stream{Pool: pool,
			Indices: ints(b, d, rows, n, func(i int) int32 { return int32(i * 7919 % (64 * entries)) }),
			Lens:    ints(b, d, rows, 1, func(int) int32 { return int32(n) })}
	}
	a := kernel.DualArgs{Out: tensorOf(b, d, kernel.F32, rows, heads*layout.V4Dim),
		Q: tensorOf(b, d, kernel.F32, rows, heads*layout.V4Dim), Window: stream(256, window), Extra: stream(64, extra),
		Sinks: tensorOf(b, d, kernel.F32, 1, heads), Heads: heads, Scale: 0.04}
	b.SetBytes(rows * (window + extra) * layout.V4EntryBytes)
	for b.Loop() {
		if err := d.Do(a); err != nil {
			b.Fatal(err)
		}
	}
	flops := 4 * float64(rows*heads*(window+extra)*layout.V4Dim) * float64(b.N)
	b.ReportMetric(flops/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// BenchmarkMultiplyFP4 multiplies one token by one packed expert matrix of DeepSeek-V4-Flash, 2048 x 4096. Bytes per
// operation are the size of the weight.
func BenchmarkMultiplyFP4(b *testing.B) {
	d := cpu.Open(vec.Best(), kernel.Options{})
	defer d.Close()
	w := kernel.Weight{Data: tensorOf(b, d, kernel.E2M1x2, 2048, 2048), Scale: tensorOf(b, d, kernel.E8M0, 2048, 128),
		BlockRows: 1, BlockCols: 32}
	data, scales := make([]byte, 2048*2048), bytes.Repeat([]byte{120}, 2048*128)
	for i := range data {
		data[i] = byte(i * 37)
	}
	if err := errors.Join(d.Write(w.Data, data), d.Write(w.Scale, scales)); err != nil {
		b.Fatal(err)
	}
	m, err := d.Prepare(w, kernel.Projected)
	if err != nil {
		b.Fatal(err)
	}
	a := kernel.MultiplyArgs{Out: tensorOf(b, d, kernel.F32, 1, 2048), X: tensorOf(b, d, kernel.F32, 1, 4096), W: m}
	b.SetBytes(2048*2048 + 2048*128)
	for b.Loop() {
		if err := d.Do(a); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkCompress compresses 32 tokens of one ratio-4 layer of V4 into 8 entries of 512 channels, from 8 slots each.
// Bytes per operation are the size of the raw rows.
func BenchmarkCompress(b *testing.B) {
	d := cpu.Open(vec.Best(), kernel.Options{})
	defer d.Close()
	f := func(rows, cols int) kernel.Tensor { return tensorOf(b, d, kernel.F32, rows, cols) }
	a := kernel.CompressArgs{Out: f(8, 512), Values: f(36, 1024), Gates: f(36, 1024), State: f(1, 2048),
		APE: f(4, 1024), Sources: ints(b, d, 8, 8, func(i int) int32 { return int32(i/8*4 + i%8) }), Ratio: 4,
		Overlap: true}
	b.SetBytes(32 * 8192)
	for b.Loop() {
		if err := d.Do(a); err != nil {
			b.Fatal(err)
		}
	}
}
