package op

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"testing"

	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/kernel/cuda"
	"sparrow/layout"
)

// selected returns a list of slots and a count for each row. Rows have different lengths, and some slots are missing.
func (b *bench) selected(rows, width, slots int, lens []int32) (indices, counts both) {
	list := make([]int32, rows*width)
	for i := range list {
		if list[i] = int32(b.rng.IntN(slots)); b.rng.IntN(9) == 0 || i/width == rows-1 {
			list[i] = -1
		}
	}
	return b.ints(rows, width, list), b.ints(rows, 1, lens)
}

func TestGPUSparseAttend(t *testing.T) {
	b := onGPU(t)
	lens := []int32{0, 1, 63, 64, 65, 1000, 1000}
	rows, width := len(lens), 1000 // rows of one, two or four segments
	for _, kind := range latents {
		l, err := layout.MainOf(kind)
		b.must(err)
		bytes := make([]byte, 12*l.PageBytes(64))
		v := make([]float32, layout.Width(kind))
		for s := range 12 * 64 {
			for i := range v {
				v[i] = num.RoundBF16(float32(b.rng.NormFloat64()))
			}
			l.Encode(bytes, s, v)
		}
		onRef, onGPU := b.pools(kind, 12, l.PageBytes(64), 64, bytes)
		for _, x := range []struct{ heads, split int }{{3, 512}, {64, 256}, {128, 512}, {128, 256}, {128, 0}} {
			heads := x.heads
			indices, counts := b.selected(rows, width, 12*64, lens)
			q, out := b.random(rows, heads*layout.Width(kind)), b.random(rows, heads*layout.LatentDim)
			lse, top := b.normal(rows, heads), b.normal(rows, heads)
			b.must(
				b.ref.Do(kernel.SparseArgs{Out: out.ref, LSE: lse.ref, Max: top.ref, Q: q.ref, Pool: onRef,
					Indices: indices.ref, Lens: counts.ref, Heads: heads, Scale: 0.05}),
				b.gpu.Do(kernel.SparseArgs{Out: out.gpu, LSE: lse.gpu, Max: top.gpu, Q: q.gpu, Pool: onGPU,
					Indices: indices.gpu, Lens: counts.gpu, Heads: heads, Scale: 0.05, SplitKeys: x.split}))
			what := fmt.Sprintf("%v, %d heads, cut after %d keys", kind, heads, x.split)
			b.nearByHead(what, out, heads, 1./64)
			// The first and the last row have no key, so their other results are not finite and are not compared.
			finite := func(x both) both { return both{x.ref.Slice(1, rows-1), x.gpu.Slice(1, rows-1)} }
			b.near(what+" lse", finite(lse), 1e-3)
			b.near(what+" max", finite(top), 1e-3)
		}
	}
	l := layout.BF16{}
	_, pool := b.pools(layout.BF16Row1152, 2, l.PageBytes(64), 64, nil)
	q, out := b.random(1, 64*layout.RowDim), b.random(1, 64*layout.LatentDim)
	b.must(b.gpu.Do(kernel.SparseArgs{Out: out.gpu, Q: q.gpu, Pool: pool,
		Indices: b.ints(1, 1, []int32{128}).gpu, Lens: b.ints(1, 1, []int32{1}).gpu, Heads: 64, Scale: 1}))
	if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a slot beyond the pool: %v, want ErrArgument at the next sync", err)
	}
}

func TestGPUEntriesAttend(t *testing.T) {
	b := onGPU(t)
	l := layout.V4Packed{}
	pools := func(pages, tokens int) (onRef, onGPU kernel.Pool) {
		n := pages * tokens
		slots := make([]int32, n)
		for i := range slots {
			slots[i] = int32(i)
		}
		onRef, _ = b.pools(layout.V4Row584, pages, l.PageBytes(tokens), tokens, nil)
		b.must(b.ref.Do(kernel.EntryStoreArgs{Rows: b.random(n, layout.V4Dim).ref,
			Norm: b.normal(1, layout.V4Dim).ref, Eps: 1e-6, Angles: b.angles(n).ref, Slots: b.ints(n, 1, slots).ref,
			Pool: onRef}))
		_, onGPU = b.pools(layout.V4Row584, pages, l.PageBytes(tokens), tokens, b.bytes(b.ref, onRef.Mem))
		return onRef, onGPU
	}
	windowRef, windowGPU := pools(2, 128)
	const rows, heads = 5, 64
	for _, tokens := range []int{64, 2} {
		extraRef, extraGPU := pools(512/tokens, tokens)
		window, windowLens := b.selected(rows, 128, 256, []int32{128, 0, 5, 64, 128})
		extra, extraLens := b.selected(rows, 600, 512, []int32{600, 100, 0, 64, 600})
		q, out, lse, sinks := b.random(rows, heads*layout.V4Dim), b.random(rows, heads*layout.V4Dim),
			b.normal(rows, heads), b.normal(1, heads)
		b.must(
			b.ref.Do(kernel.DualArgs{Out: out.ref, LSE: lse.ref, Q: q.ref,
				Window: kernel.Stream{Pool: windowRef, Indices: window.ref, Lens: windowLens.ref},
				Extra:  kernel.Stream{Pool: extraRef, Indices: extra.ref, Lens: extraLens.ref}, Sinks: sinks.ref,
				Heads: heads, Scale: 0.05}),
			b.gpu.Do(kernel.DualArgs{Out: out.gpu, LSE: lse.gpu, Q: q.gpu,
				Window: kernel.Stream{Pool: windowGPU, Indices: window.gpu, Lens: windowLens.gpu},
				Extra:  kernel.Stream{Pool: extraGPU, Indices: extra.gpu, Lens: extraLens.gpu}, Sinks: sinks.gpu,
				Heads: heads, Scale: 0.05}))
		b.nearByHead(fmt.Sprintf("two streams, pages of %d", tokens), out, heads, 1./64)
		b.near("lse", both{lse.ref.Slice(0, rows-1), lse.gpu.Slice(0, rows-1)}, 1e-3)
	}
	// The division of a row depends on the longest list of any call, not on the width of the lists of its own call.
	extraRef, extraGPU := pools(8, 64)
	list := make([]int32, 1024)
	for i := range list {
		if list[i] = -1; i < 50 {
			list[i] = int32(5 * i)
		}
	}
	window, windowLens := b.ints(1, 128, slices.Concat(list[:50], list[:78])), b.ints(1, 1, []int32{128})
	narrow, wide, extraLens := b.ints(1, 64, list[:64]), b.ints(1, 1024, list), b.ints(1, 1, []int32{50})
	one, sink := b.random(1, heads*layout.V4Dim), b.normal(1, heads)
	var bits [][]byte
	for _, indices := range []both{narrow, wide} {
		out := b.random(1, heads*layout.V4Dim)
		b.must(b.ref.Do(kernel.DualArgs{Out: out.ref, Q: one.ref,
			Window: kernel.Stream{Pool: windowRef, Indices: window.ref, Lens: windowLens.ref},
			Extra:  kernel.Stream{Pool: extraRef, Indices: indices.ref, Lens: extraLens.ref}, Sinks: sink.ref,
			Heads: heads, Scale: 0.05, MostExtra: 8192}),
			b.gpu.Do(kernel.DualArgs{Out: out.gpu, Q: one.gpu,
				Window: kernel.Stream{Pool: windowGPU, Indices: window.gpu, Lens: windowLens.gpu},
				Extra:  kernel.Stream{Pool: extraGPU, Indices: indices.gpu, Lens: extraLens.gpu}, Sinks: sink.gpu,
				Heads: heads, Scale: 0.05, MostExtra: 8192}))
		b.nearByHead("a short list among long ones", out, heads, 1./64)
		bits = append(bits, b.bytes(b.gpu, out.gpu))
	}
	if !bytes.Equal(bits[0], bits[1]) {
		t.Error("the result of a row changes next to a longer list")
	}
	kv := b.random(300, layout.V4Dim)
	indices, counts := b.selected(rows, 128, 300, []int32{128, 0, 5, 64, 128})
	q, out, sinks := b.random(rows, heads*layout.V4Dim), b.random(rows, heads*layout.V4Dim), b.normal(1, heads)
	b.must(b.ref.Do(kernel.FlatArgs{Out: out.ref, Q: q.ref, KV: kv.ref, Indices: indices.ref, Lens: counts.ref,
		Sinks: sinks.ref, Heads: heads, Scale: 0.05}),
		b.gpu.Do(kernel.FlatArgs{Out: out.gpu, Q: q.gpu, KV: kv.gpu, Indices: indices.gpu, Lens: counts.gpu,
			Sinks: sinks.gpu, Heads: heads, Scale: 0.05}))
	b.nearByHead("gathered rows", out, heads, 1./64)
}

// Twenty thousand rows, which is more than one launch supports, are bitwise equal to two calls with ten thousand rows
// each.
func TestGPUManyRowsEqualTwoHalves(t *testing.T) {
	b := onGPU(t)
	const rows, half, heads, width, slots = 20000, 10000, 2, 700, 768
	lens := make([]int32, rows)
	for i := range lens {
		lens[i] = []int32{0, 1, 63, 64, 65, 511, 512, 513, width - 1, width}[b.rng.IntN(10)]
	}
	list := make([]int32, rows*width)
	for i := range list {
		list[i] = int32(b.rng.IntN(slots+32)) - 32
		list[i] = max(list[i], -1)
	}
	indices, counts, sinks := b.ints(rows, width, list).gpu, b.ints(rows, 1, lens).gpu, b.normal(1, heads).gpu
	q := b.random(rows, heads*layout.RowDim).gpu
	halves := func(what string, run func(q, indices, lens, out, lse kernel.Tensor) error) {
		t.Helper()
		var got [2][2][]byte
		for i, step := range []int{rows, half} {
			out, err := kernel.New(b.gpu, kernel.BF16, rows, heads*layout.LatentDim)
			b.must(err)
			lse, err := kernel.New(b.gpu, kernel.F32, rows, heads)
			b.must(err)
			for from := 0; from < rows; from += step {
				part := func(x kernel.Tensor) kernel.Tensor { return x.Slice(from, from+step) }
				b.must(run(part(q), part(indices), part(counts), part(out), part(lse)))
			}
			got[i] = [2][]byte{b.bytes(b.gpu, out), b.bytes(b.gpu, lse)}
			b.gpu.Free(out.Buf)
			b.gpu.Free(lse.Buf)
		}
		for i, name := range []string{"out", "lse"} {
			if !bytes.Equal(got[0][i], got[1][i]) {
				t.Errorf("%s: %s of %d rows differs from two calls of %d", what, name, rows, half)
			}
		}
	}
	values := make([]byte, 2*slots*layout.RowDim)
	for i := 0; i < len(values); i += 2 {
		binary.LittleEndian.PutUint16(values[i:], num.BF16(float32(b.rng.NormFloat64())))
	}
	for _, kind := range mains {
		l, err := layout.MainOf(kind)
		b.must(err)
		mem := make([]byte, slots/64*l.PageBytes(64))
		v := make([]float32, layout.RowDim)
		for s := range slots {
			for i := range v {
				v[i] = num.FromBF16(binary.LittleEndian.Uint16(values[2*(s*layout.RowDim+i):]))
			}
			l.Encode(mem[s/64*l.PageBytes(64):], s%64, v)
		}
		_, pool := b.pools(kind, slots/64, l.PageBytes(64), 64, mem)
		for _, split := range []int{512, 256, 0} {
			what := fmt.Sprintf("%v, cut after %d keys", kind, split)
			halves(what, func(q, indices, lens, out, lse kernel.Tensor) error {
				return b.gpu.Do(kernel.SparseArgs{Out: out, LSE: lse, Q: q, Pool: pool, Indices: indices,
					Lens: lens, Heads: heads, Scale: 0.05, SplitKeys: split})
			})
		}
	}
	q = q.Columns(0, heads*layout.V4Dim)
	kv := b.place(b.gpu, kernel.BF16, slots, layout.V4Dim, values[:2*slots*layout.V4Dim])
	halves("gathered V4 rows", func(q, indices, lens, out, lse kernel.Tensor) error {
		return b.gpu.Do(kernel.FlatArgs{Out: out, LSE: lse, Q: q, KV: kv, Indices: indices, Lens: lens,
			Sinks: sinks, Heads: heads, Scale: 0.05})
	})
}

func TestRowsPerLaunchFollowTheDevice(t *testing.T) {
	for _, c := range []struct {
		multiprocessors int
		units           int64
		rows            int32
	}{{132, 8, 528}, {78, 8, 312}, {132, 1 << 20, 1}, {132, 1, 4224}} {
		if got := rowsPerLaunch(c.multiprocessors, c.units); got != c.rows {
			t.Errorf("%d multiprocessors, %d units a row: %d rows, want %d", c.multiprocessors, c.units, got, c.rows)
		}
	}
}

func TestRowRangesMoveEveryAddress(t *testing.T) {
	a := cuda.SparseAttendArgs{Q: 1 << 20, Out: 2 << 20, LSE: 3 << 20, QStride: 64, OutStride: 32, LSEStride: 8,
		Rows: 9}
	a.Streams[0] = cuda.SelectionView{Indices: 4 << 20, Lens: 5 << 20, IndexStride: 16, LenStride: 2, Width: 16}
	p := rowsOf(a, 3, 5)
	if p.Q != 1<<20+3*64*2 || p.Out != 2<<20+3*32*2 || p.LSE != 3<<20+3*8*4 || p.Max != 0 || p.Rows != 5 ||
		p.Streams[0].Indices != 4<<20+3*16*4 || p.Streams[0].Lens != 5<<20+3*2*4 || p.Streams[1].Indices != 0 {
		t.Errorf("rows 3 to 8: %+v", p)
	}
	if a.Streams[0].Indices != 4<<20 {
		t.Error("the whole was changed")
	}
}
