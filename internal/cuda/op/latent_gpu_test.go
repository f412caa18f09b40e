package op

import (
	"bytes"
	"errors"
	"fmt"
	"testing"

	"sparrow/internal/cuda/expect"
	"sparrow/internal/num"
	"sparrow/kernel"
	"sparrow/layout"
)

// sequences makes a pool of rows of a layout and page tables over it. Pages that are in no table contain NaN, and pages
// are in random order. sequences returns both pools and the tables, i32 [len(lens), width].
func (b *bench) sequences(kind layout.Kind, lens []int, width int) (onRef, onGPU kernel.Pool, tables []int32) {
	l, err := layout.MainOf(kind)
	b.must(err)
	const tokens = 64
	pages := 3
	for _, n := range lens {
		pages += (n + tokens - 1) / tokens
	}
	size := l.PageBytes(tokens)
	mem := bytes.Repeat([]byte{0xFF}, pages*size)
	order := b.rng.Perm(pages)
	v := make([]float32, layout.RowDim)
	tables = make([]int32, len(lens)*width)
	for s, n := range lens {
		for i := range width {
			tables[s*width+i] = int32(pages + 7) // this entry is after the length and is never read
		}
		for at := range n {
			if at%tokens == 0 {
				tables[s*width+at/tokens], order = int32(order[0]), order[1:]
			}
			for i := range v {
				v[i] = num.RoundBF16(float32(b.rng.NormFloat64()))
			}
			l.Encode(mem[int(tables[s*width+at/tokens])*size:][:size], at%tokens, v)
		}
	}
	onRef, onGPU = b.pools(kind, pages, size, tokens, mem)
	return onRef, onGPU, tables
}

// nearHeads checks the relative L2 error of the output of each head.
func (b *bench) nearHeads(what string, x both, heads int) {
	b.Helper()
	want, got := b.values(b.ref, x.ref), b.values(b.gpu, x.gpu)
	for i := 0; i < len(want); i += layout.LatentDim {
		head := make([]float32, layout.LatentDim)
		for j := range head {
			head[j] = float32(got[i+j])
		}
		if d := expect.Distance(head, want[i:i+layout.LatentDim]); !(d <= expect.AttendError) {
			b.Fatalf("%s: row %d, head %d is %.2g of its norm away, at most %g", what, i/layout.LatentDim/heads,
				i/layout.LatentDim%heads, d, expect.AttendError)
		}
	}
}

// Attention over every key agrees with the reference in every layout. The cases have rows of several sequences in one
// call, lengths around the boundaries of blocks and segments, a row without keys, and numbers of heads that do not fill
// a tile. A row is bitwise equal alone, in a batch and with a wider table.
func TestGPULatentAttend(t *testing.T) {
	b := onGPU(t)
	lens := []int{4200, 1025, 513, 65, 64}
	const width = 70
	row := []int32{0, 0, 0, 1, 1, 1, 2, 2, 3, 3, 4, 4, 4, 0}
	seen := []int32{4200, 4199, 2048, 1025, 1024, 1023, 513, 512, 65, 64, 63, 1, 0, -3}
	if testing.Short() {
		row, seen = row[3:], seen[3:]
	}
	rows := len(row)
	for _, kind := range mains {
		onRef, onGPU, list := b.sequences(kind, lens, width)
		table := b.ints(len(lens), width, list)
		at, ln := b.ints(rows, 1, row), b.ints(rows, 1, seen)
		for _, heads := range []int{3, 20, 64, 128} {
			q, out := b.random(rows, heads*layout.RowDim), b.random(rows, heads*layout.LatentDim)
			b.must(b.ref.Do(kernel.LatentArgs{Out: out.ref, Q: q.ref, Pool: onRef, Table: table.ref,
				TableRow: at.ref, Lens: ln.ref, Heads: heads, Scale: 0.05}))
			for _, split := range []int{0, 512, 1024, 2048} {
				what := fmt.Sprintf("%v, %d heads, cut after %d keys", kind, heads, split)
				run := func(out kernel.Tensor, from, to int, table kernel.Tensor) []byte {
					t.Helper()
					b.must(b.gpu.Write(out, bytes.Repeat([]byte{0xFF}, int(out.Extent()))))
					b.must(b.gpu.Do(kernel.LatentArgs{Out: out, Q: q.gpu.Slice(from, to), Pool: onGPU,
						Table: table, TableRow: at.gpu.Slice(from, to), Lens: ln.gpu.Slice(from, to), Heads: heads,
						Scale: 0.05, SplitKeys: split}))
					return b.bytes(b.gpu, out)
				}
				all := run(out.gpu, 0, rows, table.gpu)
				b.nearHeads(what, out, heads)
				for range 3 {
					if !bytes.Equal(run(out.gpu, 0, rows, table.gpu), all) {
						t.Errorf("%s: a repeated call gives a different result", what)
					}
				}
				size := len(all) / rows
				one, err := kernel.New(b.gpu, kernel.BF16, 1, heads*layout.LatentDim)
				b.must(err)
				for r := range rows {
					if !bytes.Equal(run(one, r, r+1, table.gpu), all[r*size:][:size]) {
						t.Errorf("%s: row %d of %d keys differs alone", what, r, seen[r])
					}
				}
				// A wider table has more segments, but each row is still divided into the same segments.
				wide := make([]int32, len(lens)*4*width)
				for s := range lens {
					copy(wide[s*4*width:], list[s*width:][:width])
				}
				if !bytes.Equal(run(out.gpu, 0, rows, b.ints(len(lens), 4*width, wide).gpu), all) {
					t.Errorf("%s: results change with a wider table", what)
				}
				b.gpu.Free(one.Buf)
			}
		}
	}
	_, pool, list := b.sequences(layout.FP8Row656, []int{65}, 2)
	list[1] = 1 << 20
	q, out := b.random(1, 64*layout.RowDim), b.random(1, 64*layout.LatentDim)
	b.must(b.gpu.Do(kernel.LatentArgs{Out: out.gpu, Q: q.gpu, Pool: pool, Table: b.ints(1, 2, list).gpu,
		TableRow: b.ints(1, 1, []int32{0}).gpu, Lens: b.ints(1, 1, []int32{65}).gpu, Heads: 64, Scale: 1}))
	if err := b.gpu.Sync(); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a page beyond the pool: %v, want ErrArgument at the next sync", err)
	}
}

// More rows than one launch supports, with many different lengths, are bitwise equal to two calls with half of the rows
// each.
func TestGPUManyLatentRowsEqualTwoHalves(t *testing.T) {
	b := onGPU(t)
	const rows, heads, width = 3000, 65, 20
	lens := []int{1200, 1100, 64, 700}
	row, seen := make([]int32, rows), make([]int32, rows)
	for i := range row {
		row[i] = int32(b.rng.IntN(len(lens)))
		seen[i] = int32(b.rng.IntN(lens[row[i]] + 1))
	}
	q := b.random(rows, heads*layout.RowDim).gpu
	for _, kind := range mains {
		_, pool, list := b.sequences(kind, lens, width)
		table, at, ln := b.ints(len(lens), width, list).gpu, b.ints(rows, 1, row).gpu, b.ints(rows, 1, seen).gpu
		for _, split := range []int{0, 256, 1024} {
			var got [2][]byte
			for i, step := range []int{rows, rows / 2} {
				out, err := kernel.New(b.gpu, kernel.BF16, rows, heads*layout.LatentDim)
				b.must(err)
				for from := 0; from < rows; from += step {
					b.must(b.gpu.Do(kernel.LatentArgs{Out: out.Slice(from, from+step),
						Q: q.Slice(from, from+step), Pool: pool, Table: table, TableRow: at.Slice(from, from+step),
						Lens: ln.Slice(from, from+step), Heads: heads, Scale: 0.05, SplitKeys: split}))
				}
				got[i] = b.bytes(b.gpu, out)
				b.gpu.Free(out.Buf)
			}
			if !bytes.Equal(got[0], got[1]) {
				t.Errorf("%v, cut after %d keys: %d rows differ from two calls of %d", kind, split, rows, rows/2)
			}
		}
	}
}
