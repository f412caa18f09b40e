package cpu

import (
	"errors"
	"fmt"
	"testing"

	"sparrow/internal/vec"
	"sparrow/kernel"
	"sparrow/layout"
)

// verified returns arguments that score the last rows of one request over the given number of keys.
func verified(t testing.TB, d *Device, rows, keys, heads int) kernel.ScoreArgs {
	t.Helper()
	pages := ceilDiv(keys, layout.PageTokens)
	var table, owner, lens []int32
	for i := range pages {
		table = append(table, int32(i))
	}
	for r := range rows {
		owner, lens = append(owner, 0), append(lens, int32(keys-rows+1+r))
	}
	tensor := func(k kernel.DType, rows, cols int, v ...int32) kernel.Tensor {
		x, err := kernel.New(d, k, rows, cols)
		if err == nil {
			err = kernel.WriteI32(d, x, v)
		}
		if err != nil {
			t.Fatal(err)
		}
		return x
	}
	pool := kernel.Pool{Mem: tensor(kernel.U8, pages, layout.IndexPageBytes), Layout: layout.IndexPage132,
		PageTokens: layout.PageTokens}
	return kernel.ScoreArgs{Out: tensor(kernel.F32, rows, keys), Q: tensor(kernel.E4M3, rows, heads*layout.IndexDim),
		W: tensor(kernel.F32, rows, heads), Keys: pool, Table: tensor(kernel.I32, 1, pages, table...),
		TableRow: tensor(kernel.I32, rows, 1, owner...), Lens: tensor(kernel.I32, rows, 1, lens...), Heads: heads}
}

// Rows of a paged cache are scored in groups that share blocks of keys only if the caller requests it. Native verify
// requests it and split verify does not. Rows that are declared to share keys but do not are refused.
func TestPagedRowsShareKeysAsToldTo(t *testing.T) {
	d := Open(vec.Best(), kernel.Options{Workers: 1})
	defer d.Close()
	const rows, keys = 4, 200
	args := verified(t, d, rows, keys, 1)
	blocks := ceilDiv(keys, vec.IndexBlockKeys)
	for n, groups := range map[int]int{0: 4, 1: 4, 2: 2, 4: 1} {
		args.NextN = n
		if err := d.Do(args); err != nil {
			t.Fatal(err)
		}
		if len(d.scoreItems) != groups*blocks {
			t.Errorf("%d rows in a group: %d reads of a block of keys, want %d", n, len(d.scoreItems), groups*blocks)
		}
	}
	args.NextN = rows
	if err := kernel.WriteI32(d, args.TableRow, []int32{0, 0, 0, 1}); err != nil {
		t.Fatal(err)
	}
	if err := d.Do(args); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a group of two requests: %v, want a refusal", err)
	}
}

// BenchmarkVerifyScores compares native and split scores of the rows of one request.
func BenchmarkVerifyScores(b *testing.B) {
	d := Open(vec.Best(), kernel.Options{Workers: 1})
	defer d.Close()
	for _, rows := range []int{2, 3, 4, 8} {
		args := verified(b, d, rows, 32768, 64)
		for n := 1; n <= rows; n++ {
			if args.NextN = n; rows%n != 0 {
				continue
			}
			b.Run(fmt.Sprintf("%d rows, %d at once", rows, n), func(b *testing.B) {
				for b.Loop() {
					if err := d.Do(args); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
