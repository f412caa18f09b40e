package attn

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/sample"
)

// Inputs is the input block of a pass in the device's memory: i32 [1, plan.InputWords]. The plan has the offsets of its
// arrays.
type Inputs struct {
	Block kernel.Tensor
	plan  *plan.Plan
}

// TakeInputs allocates the input block of a plan in an arena.
func TakeInputs(p *plan.Plan, a *kernel.Arena) Inputs {
	return Inputs{Block: a.Take(kernel.I32, 1, p.InputWords), plan: p}
}

// InputsOf returns the input block of a plan in memory that was allocated before.
func InputsOf(p *plan.Plan, block kernel.Tensor) Inputs { return Inputs{Block: block, plan: p} }

// Array returns an array of the block: i32 [rows, cols], without rows if the pass has no array of that name.
func (in Inputs) Array(name plan.ArrayName) kernel.Tensor {
	a := in.plan.Input(name)
	t := in.Block
	t.Off += int64(4 * a.First)
	t.Rows, t.Cols, t.Stride = a.Rows, a.Cols, a.Cols
	return t
}

// Block is the input block of a pass in host memory.
type Block struct {
	plan  *plan.Plan
	words []int32
}

// NewBlock makes the input block of a plan in host memory of at least plan.InputWords words.
func NewBlock(p *plan.Plan, words []int32) Block { return Block{plan: p, words: words[:p.InputWords]} }

// Array returns an array of the block, empty if the pass has no array of that name.
func (b Block) Array(name plan.ArrayName) []int32 {
	a := b.plan.Input(name)
	end := a.First + a.Words()
	return b.words[a.First:end:end]
}

// FillLogits lists the rows whose logits are computed: the last tokens of each request, ordered by request.
func (b Block) FillLogits(in *Batch) error {
	if err := b.FillSampling(in); err != nil {
		return err
	}
	return b.fillRows(plan.LogitRows, in.Batch, func(r int) (from, end int) {
		n := in.Batch.Rows(in.Config, r)
		return n - in.Batch.Requests[r].Logits, n
	})
}

// FillBlocks writes the sampling parameters of draft blocks. All rows of a request have logits, and the rows are
// ordered by position in the block: first those at the first position of all blocks.
func (b Block) FillBlocks(in *Batch) error {
	draws, n := b.Array(plan.Draws), len(in.Batch.Requests)
	clear(draws) // zero parameters mean greedy sampling
	for r := range in.Batch.Requests {
		if r >= len(in.Draws) || in.Draws[r] == nil {
			continue
		}
		if rows := in.Batch.Rows(in.Config, r); len(in.Draws[r]) != rows || len(draws) == 0 {
			return fmt.Errorf("%w: request %d samples %d tokens, but its block has %d", kernel.ErrArgument, r,
				len(in.Draws[r]), rows)
		}
		for i := range in.Draws[r] {
			in.Draws[r][i].Put(draws[(i*n+r)*sample.DrawWords:])
		}
	}
	return nil
}

// FillRecorded lists the rows that are recorded, ordered by request.
func (b Block) FillRecorded(batch *plan.Batch) error {
	return b.fillRows(plan.RecordRows, batch, func(r int) (from, end int) {
		q := &batch.Requests[r]
		return q.RecordFrom, q.RecordFrom + q.Records
	})
}

// fillRows writes to an array, ordered by request, the rows of the token range that `of` returns for each request.
func (b Block) fillRows(name plan.ArrayName, batch *plan.Batch, of func(r int) (from, end int)) error {
	out, at := b.Array(name), 0
	for r := range batch.Requests {
		from, end := of(r)
		for t := from; t < end; t++ {
			row, err := RowOf(b.plan, r, t)
			if err != nil {
				return err
			}
			out[at] = row
			at++
		}
	}
	return nil
}

// FillSampling lists the rows of logits that are returned whole, if not all of them are, and writes the sampling
// parameters of the other rows.
func (b Block) FillSampling(in *Batch) error {
	whole, draws, at, n := b.Array(plan.WholeRows), b.Array(plan.Draws), 0, 0
	clear(draws) // zero parameters mean greedy sampling
	for r := range in.Batch.Requests {
		q := &in.Batch.Requests[r]
		if r < len(in.Draws) && in.Draws[r] != nil {
			if len(in.Draws[r]) != q.Logits || !q.Best || len(draws) == 0 {
				return fmt.Errorf("%w: request %d samples %d tokens, but it has %d rows of "+
					"logits", kernel.ErrArgument, r,
					len(in.Draws[r]), q.Logits)
			}
			for i := range in.Draws[r] {
				in.Draws[r][i].Put(draws[(at+i)*sample.DrawWords:])
			}
		}
		for range q.Logits {
			if !q.Best && len(whole) > 0 {
				whole[n] = int32(at)
				n++
			}
			at++
		}
	}
	return nil
}

// CheckToken returns an error if a token is outside the vocabulary.
func CheckToken(token int32, vocabulary int) error {
	if token < 0 || int(token) >= vocabulary {
		return fmt.Errorf("%w: token %d is outside the vocabulary of %d tokens", kernel.ErrArgument, token, vocabulary)
	}
	return nil
}
