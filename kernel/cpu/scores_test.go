package cpu

import (
	"errors"
	"testing"

	"sparrow/kernel"
	"sparrow/kernel/cpu/vec"
	"sparrow/layout"
)

// Rows of a paged cache share blocks of keys where the caller says so and only there: native verify and split verify are
// two paths. Rows that are said to share and do not are refused.
func TestPagedRowsShareKeysAsToldTo(t *testing.T) {
	d := Open(vec.Best(), kernel.Options{Workers: 1})
	defer d.Close()
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
	const rows, keys = 4, 200
	args := kernel.ScoreArgs{Out: tensor(kernel.F32, rows, keys), Q: tensor(kernel.E4M3, rows, layout.IndexDim), W: tensor(kernel.F32, rows, 1), Heads: 1,
		Keys:  kernel.Pool{Mem: tensor(kernel.U8, 4, layout.IndexFP8{}.PageBytes(64)), Layout: layout.IndexPage132, PageTokens: 64},
		Table: tensor(kernel.I32, 2, 4, 0, 1, 2, 3, 3, 2, 1, 0), TableRow: tensor(kernel.I32, rows, 1, 1, 1, 1, 1),
		Lens: tensor(kernel.I32, rows, 1, keys-3, keys-2, keys-1, keys)}
	blocks := (keys + vec.IndexBlockKeys - 1) / vec.IndexBlockKeys
	for n, groups := range map[int]int{0: 4, 1: 4, 2: 2, 4: 1} {
		args.NextN = n
		if err := d.Scores(args); err != nil {
			t.Fatal(err)
		}
		if len(d.scoreItems) != groups*blocks {
			t.Errorf("%d rows at once: blocks of keys are read %d times, want %d", n, len(d.scoreItems), groups*blocks)
		}
	}
	args.TableRow = tensor(kernel.I32, rows, 1, 1, 1, 1, 0)
	if err := d.Scores(args); !errors.Is(err, kernel.ErrArgument) {
		t.Errorf("a group of two requests: %v, want a refusal", err)
	}
}
