package step

import (
	"fmt"
	"slices"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// feed carries the best tokens of a pass to the tokens of the next one on the device, so that the next pass can be
// enqueued before the host has seen them.
type feed struct {
	// table is i32 [2*rows, 1] of memory that no pass uses: the best tokens of the pass before, then the tokens of the
	// next pass as the host knows them.
	table kernel.Tensor
	// places is i32 [rows, 1]: where each token of the next pass is.
	places kernel.Tensor
	rows   int   // the most of a pass
	from   *pass // the latest pass, where it is the target's and has best tokens; else nil
	wants  []fed // of the batch that is being prepared

	held  []int32         // what places holds
	words [2]kernel.Words // what is written to the device; used alternately, like the input blocks
	turn  int
}

// fed is a request whose first new token is the best token of a row of the pass before.
type fed struct{ request, row int }

// bind takes from an arena what outlives a pass.
func bind(m model.Model, a *kernel.Arena, rows int) feed {
	m.Bind(a, rows)
	return feed{table: a.Take(kernel.I32, 2*rows, 1), places: a.Take(kernel.I32, rows, 1), rows: rows}
}

// want adds the first token of a work to those that are fed.
func (f *feed) want(request int, w *Work) error {
	if w.Sampled == 0 {
		return nil
	}
	if f.from == nil || w.Sampled < 0 || w.Sampled > f.from.plan.Logits {
		return fmt.Errorf("its first token is the best of row %d of the pass before, which has no such row",
			w.Sampled-1)
	}
	f.wants = append(f.wants, fed{request, w.Sampled - 1})
	return nil
}

// enqueue enqueues the input block of a pass of the target, and behind it the replacement of the tokens that are fed.
func (f *feed) enqueue(dev kernel.Device, p *pass, block []int32, batch *plan.Batch) error {
	before := f.from
	f.from = nil
	if len(f.wants) == 0 {
		return kernel.WriteI32(dev, p.Inputs(), block)
	}
	best := before.Outputs().Best.IDs
	tokens := attn.NewBlock(p.plan, block).Array(plan.TokenIDs)
	// A pass in the same memory as the one before leaves that one's best tokens where they are; otherwise they are
	// copied before anything else. Tokens that are not fed are picked from the table too.
	direct := p == before && f.all(batch, len(tokens))
	if !direct {
		if err := dev.Copy(kernel.CopyArgs{Out: f.table.Slice(0, best.Rows), X: best}); err != nil {
			return err
		}
		best = f.table
	}
	if err := kernel.WriteI32(dev, p.Inputs(), block); err != nil {
		return err
	}
	f.turn = 1 - f.turn
	words, err := f.words[f.turn].Take(dev, 2*len(tokens))
	if err != nil {
		return err
	}
	places, own := words[:len(tokens)], words[len(tokens):]
	for i := range places {
		places[i] = 0 // of padding, whose token is not used
		if !direct {
			places[i] = int32(f.rows + i)
		}
	}
	for _, w := range f.wants {
		row, err := attn.RowOf(p.plan, w.request, 0)
		if err != nil {
			return err
		}
		places[row] = int32(w.row)
	}
	if !direct {
		copy(own, tokens)
		if err := kernel.WriteI32(dev, f.table.Slice(f.rows, f.rows+len(own)), own); err != nil {
			return err
		}
	}
	if !slices.Equal(places, f.held) { // decodes mostly have the order of the pass before
		f.held = append(f.held[:0], places...)
		if err := kernel.WriteI32(dev, f.places.Slice(0, len(places)), places); err != nil {
			f.held = f.held[:0]
			return err
		}
	}
	return dev.Take(kernel.TakeArgs{Out: attn.InputsOf(p.plan, p.Inputs()).Array(plan.TokenIDs), X: best,
		Rows: f.places.Slice(0, len(places))})
}

// all reports whether every row of a batch is fed, or padding.
func (f *feed) all(batch *plan.Batch, rows int) bool {
	padding := 0
	for i := range batch.Requests {
		if batch.Requests[i].Padding {
			padding++
		}
	}
	return len(f.wants)+padding == rows
}
