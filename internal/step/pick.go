package step

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// If the tokens of a draft pass come from the target on the device, the host does not know yet how many drafts were
// accepted. So it does not know after which row of a sequence the next draft comes. First, all rows store their keys
// and the inputs of the layer. Then one row of each sequence passes through the layer. The host prepares the inputs of
// this row for every possible number of accepted drafts; the device compares the drafts with the target's tokens and
// uses the inputs for the actual number (kernel.Accepter). The page tables cover all rows, so one plan serves every
// number. A block is picked in a similar way, but without storing rows first: the host prepares the inputs for every
// number of accepted drafts, and the device writes the first token of the block into them.

// picks holds the memory of passes whose rows the device picks.
type picks struct {
	most   int           // maximum number of drafts of a sequence
	table  kernel.Tensor // i32 [1, n]: drafts and words of kernel.AcceptArgs
	stored *plan.Plan    // plan of the pass that stored the rows
	blocks [][]int32     // input blocks for smaller numbers of accepted drafts, from 0 on
	list   []int32       // contents of table
	args   kernel.AcceptArgs
	words  [2]kernel.Words // memory for list; the two are used alternately, like the input blocks
	turn   int
}

// pickedArrays lists the arrays that depend on which row of a sequence is picked.
var pickedArrays = [...]plan.ArrayName{plan.Positions, plan.Slots, plan.Lengths, plan.Kept, plan.HiddenRows,
	plan.WindowLengths, plan.WindowIndices, plan.Draws}

// bindPicks allocates memory for passes of up to the given number of requests, each with up to the given number of
// drafts. block is the size of a block of drafts, or 0 if drafts are made one by one.
func bindPicks(a *kernel.Arena, requests, drafts, block int) picks {
	if drafts <= 0 {
		return picks{}
	}
	words := 5 + sample.DrawWords
	// For each row of a block: position, length, sampling parameters, and a window token per draft; and the first
	// token.
	if block > 0 {
		words = block*(2+sample.DrawWords+drafts) + 1
	}
	return picks{most: drafts, table: a.Take(kernel.I32, 1, requests*(1+2*drafts+words*(3+drafts)))}
}

// saveChosen copies the tokens of the target before the drafting layer reuses their memory.
func (r *Runner) saveChosen() error {
	dev, one := r.model.Device().(kernel.Device)
	if !one {
		return fmt.Errorf("step: tokens cannot be passed from pass to pass on several devices")
	}
	return r.feed.save(dev)
}

// collectAll adds all rows to a batch that stores them.
func (r *Runner) collectAll(works []Draft, _ bool) error {
	r.beginDrafts(works, plan.PassDraft)
	for i := range works {
		w := &works[i]
		n := len(w.Tokens)
		err := r.addDraft(w, w.Kind, 0, n, r.source(w, false), false, nil)
		if w.Sampled > 0 {
			for k := range len(w.Right) + 1 {
				if err == nil {
					err = r.feed.want(i, n-1-len(w.Right)+k, w.Sampled+k, plan.PassTarget)
				}
			}
		}
		if err != nil {
			return fmt.Errorf("step: draft %d: %w", i, err)
		}
	}
	return nil
}

// collectPicked adds the rows after right accepted drafts to a batch.
func (r *Runner) collectPicked(works []Draft, right int) error {
	if r.cfg.Model.Block > 0 {
		r.collectBlocks(works, right)
		return nil
	}
	r.beginDrafts(works, plan.PassPick)
	for i := range works {
		w := &works[i]
		if !w.Logits {
			continue
		}
		k := min(right, len(w.Right))
		at := w.last(k)
		err := r.addDraft(w, plan.ModeDraft, at, at+1,
			func(t int) (int32, error) { return attn.RowOf(r.picks.stored, i, t) }, true, w.draws(k, 1))
		if err != nil {
			return fmt.Errorf("step: draft %d: %w", i, err)
		}
	}
	r.pad(&r.draft)
	return nil
}

// startPicked enqueues the pass over the picked rows, whose keys collectAll has stored, or over blocks.
func (r *Runner) startPicked(works []Draft, _ bool) (*pass, []int32, error) {
	k := &r.picks
	k.stored, k.args = r.draft.input.Plan, kernel.AcceptArgs{}
	most := 0
	for i := range works {
		most = max(most, len(works[i].Right))
	}
	// Rows attend to the most keys if all drafts are accepted: so the plan for that case also covers smaller numbers of
	// accepted drafts.
	if err := r.collectPicked(works, most); err != nil {
		return nil, nil, err
	}
	if most == 0 && (r.cfg.Model.Block == 0 || !sampled(works)) {
		return r.start(&r.draft)
	}
	p, err := r.pass(&r.draft.batch)
	if err != nil {
		return nil, nil, err
	}
	for len(k.blocks) < most {
		k.blocks = append(k.blocks, nil)
	}
	for n := range most {
		if err := r.collectPicked(works, n); err != nil {
			return nil, nil, err
		}
		if len(k.blocks[n]) < p.plan.InputWords {
			k.blocks[n] = make([]int32, p.plan.InputWords)
		}
		if err := r.prepare(&r.draft, p, k.blocks[n]); err != nil {
			return nil, nil, err
		}
	}
	if err := r.collectPicked(works, most); err != nil {
		return nil, nil, err
	}
	block, err := r.block(&r.draft, p)
	if err != nil {
		return nil, nil, err
	}
	if err := r.prepare(&r.draft, p, block); err != nil {
		return nil, nil, err
	}
	k.fill(works, p, block, most)
	return p, block, r.launch(&r.draft, p, block)
}

// fill writes to list the drafts of all requests and the words of an input block that depend on the number of accepted
// drafts.
func (k *picks) fill(works []Draft, p *pass, block []int32, most int) {
	k.list = k.list[:0]
	requests := 0
	for i := range works {
		w := &works[i]
		if !w.Logits {
			continue
		}
		requests++
		k.list = append(k.list, int32(max(w.Sampled-1, 0)))
		for n := range most {
			one := Range{Least: 1} // range of a draft that does not exist: no token accepts it
			if n < len(w.Right) {
				one = w.Right[n]
			}
			k.list = append(k.list, one.Least, one.Most)
		}
	}
	drafts := len(k.list)
	rows := p.plan.Rows / p.plan.Requests // rows of a request: 1, or the rows of a block
	if p.plan.Pass == plan.PassBlock {
		k.begin(works, p.plan.Input(plan.TokenIDs).First, rows, most)
	}
	// For a block the array is empty, because the rows of a request follow each other.
	owners := attn.NewBlock(p.plan, block).Array(plan.RowRequests)
	for _, name := range pickedArrays {
		a := p.plan.Input(name)
		for i := range a.Words() {
			at, row := a.First+i, i/a.Cols
			request := int32(row / rows)
			switch {
			case name == plan.Draws: // rows of logits are ordered by position in the block, then by request
				request = int32(row % p.plan.Requests)
			case len(owners) > 0:
				request = owners[row]
			}
			if !k.differs(block, at, most) {
				continue
			}
			k.list = append(k.list, int32(at), request)
			for n := range most {
				k.list = append(k.list, k.blocks[n][at])
			}
			k.list = append(k.list, block[at])
		}
	}
	view := func(first, rows, cols int) kernel.Tensor {
		t := k.table
		t.Off += 4 * int64(first)
		t.Rows, t.Cols, t.Stride = rows, cols, cols
		return t
	}
	k.args = kernel.AcceptArgs{Drafts: view(0, requests, 1+2*most),
		Words: view(drafts, (len(k.list)-drafts)/(3+most), 3+most)}
}

// begin appends the first tokens of blocks to list. The device writes each of them: the token after the accepted
// drafts. The first token is word number first of the input block, and the tokens of successive blocks are rows words
// apart.
func (k *picks) begin(works []Draft, first, rows, most int) {
	request := 0
	for i := range works {
		if works[i].Sampled > 0 {
			k.list = append(append(k.list, int32(-1-first-request*rows), int32(request)), make([]int32, most+1)...)
		}
		if works[i].Logits {
			request++
		}
	}
}

// differs reports whether a word of the input block depends on the number of accepted drafts.
func (k *picks) differs(block []int32, at, most int) bool {
	for n := range most {
		if k.blocks[n][at] != block[at] {
			return true
		}
	}
	return false
}

// enqueue writes the words for the actual number of accepted drafts into the inputs of an enqueued pass. tokens are the
// target's tokens.
func (k *picks) enqueue(dev kernel.Device, p *pass, tokens kernel.Tensor) error {
	if k.args.Words.Rows == 0 {
		return nil
	}
	k.turn = 1 - k.turn
	words, err := k.words[k.turn].Take(dev, len(k.list))
	if err != nil {
		return err
	}
	copy(words, k.list)
	to := k.table
	to.Cols, to.Stride = len(words), len(words)
	if err := kernel.WriteI32(dev, to, words); err != nil {
		return err
	}
	k.args.Out, k.args.Tokens = p.Inputs(), tokens
	return dev.Accept(k.args)
}
