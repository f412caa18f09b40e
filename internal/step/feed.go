package step

import (
	"fmt"
	"slices"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/plan"
)

// feed copies the best or sampled tokens of a pass to the inputs of the next pass, on the device. The next pass can
// then be enqueued before the host has the tokens. Tokens are copied from the target to the target or the drafting
// layer, and from the drafting layer to the target.
type feed struct {
	table kernel.Tensor // i32 [rows, 1], in memory that no pass uses: tokens chosen by the previous pass
	from  *pass         // latest pass, if it has chosen tokens and its memory was not reused; else nil
	saved int           // number of tokens of the latest pass that are in table
	kind  plan.Pass
	wants []fed     // tokens that the batch in preparation reads from the previous pass
	sent  [2]places // destinations of tokens in passes of the target, and of the drafting layer
}

// places holds the destinations of tokens in the inputs of a pass.
type places struct {
	table kernel.Tensor // i32 [rows, 1]: for each token of the previous pass, its row in the next pass, or -1
	held  []int32       // contents of table; for successive decodes it seldom changes
	words [2]kernel.Words
	turn  int // index of the words in use: the two are used alternately, like the input blocks
}

// fed is a new token of a request that comes from a row of logits of the previous pass.
type fed struct{ request, token, row int }

// newFeed allocates memory for passes of the given number of rows.
func newFeed(a *kernel.Arena, rows int) feed {
	take := func() kernel.Tensor { return a.Take(kernel.I32, rows, 1) }
	return feed{table: take(), sent: [2]places{{table: take()}, {table: take()}}}
}

// free releases the host memory.
func (f *feed) free(m kernel.Memory) {
	for i := range f.sent {
		for j := range f.sent[i].words {
			_ = f.sent[i].words[j].Free(m)
		}
	}
}

// chosen returns the tokens that the previous pass chose.
func (f *feed) chosen() kernel.Tensor {
	if f.from != nil {
		return f.from.Outputs().Best.IDs
	}
	return f.table.Slice(0, f.saved)
}

// want makes a token of a request come from row number row of the previous pass, counted from 1; row 0 means that the
// host knows the token. It returns an error if the previous pass was not of the given kind or has no such row.
func (f *feed) want(request, token, row int, kind plan.Pass) error {
	if row == 0 {
		return nil
	}
	if row < 0 || row > f.chosen().Rows || f.kind != kind {
		return fmt.Errorf("token %d refers to row %d of the previous %v pass, which has no such row", token,
			row-1, kind)
	}
	f.wants = append(f.wants, fed{request, token, row - 1})
	return nil
}

// wantDrafts makes the drafts of a request come from the previous pass: the drafts are all its tokens except the first.
// row is the row of the drafting layer's previous pass that gives the draft, counted from 1, or the first row of its
// block; 0 means none.
func (f *feed) wantDrafts(request, drafts, row int) error {
	if row == 0 {
		return nil
	}
	kind, apart := plan.PassPick, 1
	if f.from != nil && f.from.plan.Pass == plan.PassBlock {
		kind, apart = plan.PassBlock, f.from.plan.Requests
	}
	for i := range max(drafts, 1) {
		if err := f.want(request, 1+i, row+i*apart, kind); err != nil {
			return err
		}
	}
	return nil
}

// forget is called when the memory of the latest pass is reused.
func (f *feed) forget() { f.from, f.saved = nil, 0 }

// discardUnless is deferred by functions that enqueue a pass or wait for a pass. If the function failed or panicked,
// enqueued operations may not have run on the device, so the next pass writes all token destinations again.
func (f *feed) discardUnless(done *bool) {
	if *done {
		return
	}
	for i := range f.sent {
		f.sent[i].held = f.sent[i].held[:0]
	}
}

// remember makes the tokens of the latest pass available to the next pass, if it has chosen any.
func (f *feed) remember(p *pass) {
	f.forget()
	if p.Outputs().Best.IDs.Given() {
		f.from, f.kind = p, p.plan.Pass
	}
}

// save copies the tokens of the latest pass, to table, before other passes use its memory.
func (f *feed) save(dev kernel.Device) error {
	if f.from == nil {
		return nil
	}
	ids := f.from.Outputs().Best.IDs
	f.from, f.saved = nil, ids.Rows
	return dev.Copy(kernel.CopyArgs{Out: f.table.Slice(0, ids.Rows), X: ids})
}

// enqueue enqueues the copy of the input block of a pass, and after it the copy of the tokens that come from the
// previous pass.
func (f *feed) enqueue(dev kernel.Device, p *pass, block []int32) error {
	if len(f.wants) == 0 {
		return kernel.WriteI32(dev, p.Inputs(), block)
	}
	// A pass in other memory than the previous pass would overwrite the tokens, so they are saved first.
	if p != f.from {
		if err := f.save(dev); err != nil {
			return err
		}
	}
	if err := kernel.WriteI32(dev, p.Inputs(), block); err != nil {
		return err
	}
	tokens, to := f.chosen(), &f.sent[0]
	if p.plan.Pass != plan.PassTarget {
		to = &f.sent[1]
	}
	rows, err := to.write(dev, p, f.wants, tokens.Rows)
	if err != nil {
		return err
	}
	return dev.Put(kernel.PutArgs{Out: attn.InputsOf(p.plan, p.Inputs()).Array(plan.TokenIDs), X: tokens, Rows: rows})
}

// write enqueues a copy of the destinations of a number of tokens, unless the device already has them.
func (t *places) write(dev kernel.Device, p *pass, wants []fed, tokens int) (kernel.Tensor, error) {
	words, err := t.words[1-t.turn].Take(dev, tokens)
	if err != nil {
		return kernel.Tensor{}, err
	}
	for i := range words {
		words[i] = -1
	}
	for _, w := range wants {
		if words[w.row] >= 0 {
			return kernel.Tensor{}, fmt.Errorf("step: two tokens refer to row %d of the previous pass, "+
				"want at most one", w.row)
		}
		if words[w.row], err = attn.RowOf(p.plan, w.request, w.token); err != nil {
			return kernel.Tensor{}, err
		}
	}
	to := t.table.Slice(0, tokens)
	if slices.Equal(words, t.held) {
		return to, nil
	}
	t.turn, t.held = 1-t.turn, append(t.held[:0], words...)
	if err := kernel.WriteI32(dev, to, words); err != nil {
		t.held = t.held[:0]
		return kernel.Tensor{}, err
	}
	return to, nil
}
