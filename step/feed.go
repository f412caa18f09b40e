package step

import (
	"fmt"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// feed carries the best tokens of a pass to the tokens of the next one on the device, so that the next pass can be
// enqueued before the host has seen them.
type feed struct {
	// table is i32 [3*rows, 1] of memory that no pass uses: the best tokens of the pass before, then the tokens of the
	// next pass as the host knows them, then where in the table each of its tokens is.
	table kernel.Tensor
	rows  int             // the most of a pass
	from  *pass           // the latest pass, where it is the target's and has best tokens; else nil
	words [2]kernel.Words // used alternately, like the input blocks
	turn  int
	wants []fed // of the batch that is being prepared
}

// fed is a request whose first new token is the best token of a row of the pass before.
type fed struct{ request, row int }

// bind takes from an arena what outlives a pass.
func bind(m model.Model, a *kernel.Arena, rows int) feed {
	m.Bind(a, rows)
	return feed{table: a.Take(kernel.I32, 3*rows, 1), rows: rows}
}

// want adds the first token of a work to those that are fed.
func (f *feed) want(request int, w *Work) error {
	if w.Sampled == 0 {
		return nil
	}
	if f.from == nil || w.Sampled < 0 || w.Sampled > f.from.plan.Logits {
		return fmt.Errorf("its first token is the best of row %d of the pass before, which has no such row", w.Sampled-1)
	}
	f.wants = append(f.wants, fed{request, w.Sampled - 1})
	return nil
}

// keep enqueues a copy of the best tokens of the pass before. It comes before anything else of the next pass, which may
// use the memory they are in.
func (f *feed) keep(dev kernel.Device) error {
	if len(f.wants) == 0 {
		return nil
	}
	ids := f.from.Outputs().Best.IDs
	return dev.Copy(kernel.CopyArgs{Out: f.table.Slice(0, ids.Rows), X: ids})
}

// fill enqueues the replacement of tokens of a pass whose input block is on the device.
func (f *feed) fill(dev kernel.Device, p *pass, block []int32) error {
	if len(f.wants) == 0 {
		return nil
	}
	tokens := attn.NewBlock(p.plan, block).Array(plan.TokenIDs)
	n := len(tokens)
	f.turn = 1 - f.turn
	words, err := f.words[f.turn].Take(dev, 2*n)
	if err != nil {
		return err
	}
	copy(words, tokens)
	for i := range n {
		words[n+i] = int32(f.rows + i)
	}
	for _, w := range f.wants {
		row, err := attn.RowOf(p.plan, w.request, 0)
		if err != nil {
			return err
		}
		words[n+int(row)] = int32(w.row)
	}
	if err := kernel.WriteI32(dev, f.table.Slice(f.rows, f.rows+2*n), words); err != nil {
		return err
	}
	return dev.Take(kernel.TakeArgs{Out: attn.InputsOf(p.plan, p.Inputs()).Array(plan.TokenIDs),
		X: f.table.Slice(0, f.rows+n), Rows: f.table.Slice(f.rows+n, f.rows+2*n)})
}
