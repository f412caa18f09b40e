package step

import (
	"fmt"
	"slices"

	"sparrow/attn"
	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// feed carries the tokens that a pass has chosen, the best of its rows or those that were drawn, to the tokens of the
// next pass on the device, so that the next pass can be enqueued before the host has seen them: from the target to the
// target or the drafting layer, and from the drafting layer to the target.
type feed struct {
	// table is i32 [2*rows, 1] of memory that no pass uses: the tokens that the pass before chose, then the tokens of
	// the next pass as the host knows them.
	table kernel.Tensor
	// places is i32 [rows, 1]: where each token of the next pass is.
	places kernel.Tensor
	rows   int   // the most of a pass
	from   *pass // the latest pass, where it has chosen tokens and its memory is not used again; else nil
	saved  int   // how many tokens of the latest pass are in table
	kind   plan.Pass
	wants  []fed // of the batch that is being prepared

	held  []int32         // what places holds
	words [2]kernel.Words // what is written to the device; used alternately, like the input blocks
	turn  int
}

// fed is a new token of a request that the pass before chose from one of its rows of logits.
type fed struct{ request, token, row int }

// bind takes from an arena what outlives a pass.
func bind(m model.Model, a *kernel.Arena, rows int) (model.Workspace, feed) {
	return m.Bind(a, rows), feed{table: a.Take(kernel.I32, 2*rows, 1), places: a.Take(kernel.I32, rows, 1), rows: rows}
}

// want adds a token of a request to those that are fed: the one of row number row, from 1, of the pass before, which
// must be of that kind; 0 is none.
func (f *feed) want(request, token, row int, kind plan.Pass) error {
	if row == 0 {
		return nil
	}
	rows := f.saved
	if f.from != nil {
		rows = f.from.plan.Logits
	}
	if row < 0 || row > rows || f.kind != kind {
		return fmt.Errorf("token %d is that of row %d of the %v pass before, which has no such row", token, row-1, kind)
	}
	f.wants = append(f.wants, fed{request, token, row - 1})
	return nil
}

// forget says that the memory of the latest pass is used again.
func (f *feed) forget() { f.from, f.saved = nil, 0 }

// remember lets the next pass take the tokens of the latest one, where it has chosen any.
func (f *feed) remember(p *pass) {
	f.forget()
	if p.Outputs().Best.IDs.Given() {
		f.from, f.kind = p, p.plan.Pass
	}
}

// save copies the tokens of the latest pass, before other passes use its memory.
func (f *feed) save(dev kernel.Device) error {
	if f.from == nil {
		return nil
	}
	ids := f.from.Outputs().Best.IDs
	f.from, f.saved = nil, ids.Rows
	return dev.Copy(kernel.CopyArgs{Out: f.table.Slice(0, ids.Rows), X: ids})
}

// enqueue enqueues the input block of a pass, and behind it the replacement of the tokens that are fed.
func (f *feed) enqueue(dev kernel.Device, p *pass, block []int32, batch *plan.Batch) error {
	if len(f.wants) == 0 {
		return kernel.WriteI32(dev, p.Inputs(), block)
	}
	tokens := attn.NewBlock(p.plan, block).Array(plan.TokenIDs)
	// A pass in the same memory as the one before leaves that one's tokens where they are; otherwise they are copied
	// before anything else. Tokens that are not fed are picked from the table too.
	direct := p == f.from && f.all(batch, len(tokens))
	chosen := f.table
	if direct {
		chosen = f.from.Outputs().Best.IDs
	} else if err := f.save(dev); err != nil {
		return err
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
		row, err := attn.RowOf(p.plan, w.request, w.token)
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
	return dev.Take(kernel.TakeArgs{Out: attn.InputsOf(p.plan, p.Inputs()).Array(plan.TokenIDs), X: chosen,
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
