package model

import (
	"fmt"

	"sparrow/internal/attn"
	"sparrow/kernel"
	"sparrow/plan"
	"sparrow/record"
)

// Choices records and replaces the choices (selections and experts) of a pass. In a pass that neither records nor
// replays, its methods add no operations.
type Choices struct {
	out *Outputs
	// Tensors of replayed choices in the input block. rows and mixed, i32 [P, 1], are the rows whose selections and
	// whose experts are replayed; -1: none.
	rows, mixed kernel.Tensor
	selections  kernel.Tensor // i32 [P, selecting layers * K]: replayed selections
	experts     kernel.Tensor // i32 [P, layers with experts * k]: replayed experts
	weights     kernel.Tensor // f32 [P, layers with experts * k]: routing weights of replayed experts
	shape       record.Shape

	tally *Tally        // nil if choices are not counted
	seen  kernel.Tensor // i32 [T, 1]: number of tokens that each row may attend to
}

// NewChoices finds the tensors of recorded choices in the outputs of a pass, and of replayed choices in its inputs.
func NewChoices(p *plan.Plan, in attn.Inputs, out *Outputs, s record.Shape) Choices {
	if p.Replayed == 0 {
		return Choices{out: out}
	}
	g := Choices{out: out, rows: in.Array(plan.ReplayRows), mixed: in.Array(plan.ReplayMixed),
		selections: in.Array(plan.ReplaySelections), experts: in.Array(plan.ReplayExperts),
		weights: in.Array(plan.ReplayWeights), shape: s}
	g.weights.DType = kernel.F32 // the words of the input block are float32 bits
	return g
}

// Count enables counting of chosen experts in the pass; seen is the number of tokens that each row may attend to, 0 for
// padding rows. If the tally is nil, nothing is counted.
func (g *Choices) Count(t *Tally, seen kernel.Tensor) { g.tally, g.seen = t, seen }

// part returns the columns of layer i in t, in which each layer that counts accepts has n columns. If counts does not
// accept layer i, it returns the zero Tensor.
func (g *Choices) part(t kernel.Tensor, i, n int, counts func(int) bool) kernel.Tensor {
	if t.Rows == 0 || !counts(i) {
		return kernel.Tensor{}
	}
	at := 0
	for l := range i {
		if counts(l) {
			at += n
		}
	}
	return t.Columns(at, at+n)
}

// Tap returns the tensors with which the selection of layer i is recorded or replaced.
func (g *Choices) Tap(i int) attn.Tap {
	t := attn.Tap{Rows: g.out.Rows, Places: g.rows}
	if r := g.out.Recorded; i < len(r) {
		t.Selected, t.Scores, t.Blocks = r[i].Selected, r[i].Scores, r[i].Blocks
	}
	t.Given = g.part(g.selections, i, g.shape.TopK, g.shape.Selects)
	return t
}

// ExpertTap holds the tensors with which one layer's choice of experts is recorded, replaced and counted. Tensors that
// are not given are skipped.
type ExpertTap struct {
	Rows             kernel.Tensor // i32 [R, 1]: rows that are recorded
	Experts, Weights kernel.Tensor // i32 and f32 [R, k]: receive the experts and routing weights of the recorded rows
	Places           kernel.Tensor // i32 [P, 1]: rows that are replayed, -1: none
	GivenExperts     kernel.Tensor // i32 [P, k]: experts of the replayed rows
	GivenWeights     kernel.Tensor // f32 [P, k]: routing weights of these experts
	Counts, Seen     kernel.Tensor // i32 [1, experts] and [T, 1]: counters of choices; tokens that rows may attend to
}

// Pass replaces chosen experts [T, k] and their weights, records and counts them.
func (t *ExpertTap) Pass(list *kernel.Builder, experts, weights kernel.Tensor) {
	if t.GivenExperts.Given() {
		list.Add(kernel.PutArgs{Out: experts, X: t.GivenExperts, Rows: t.Places})
		list.Add(kernel.PutArgs{Out: weights, X: t.GivenWeights, Rows: t.Places})
	}
	if t.Experts.Given() {
		list.Add(kernel.TakeArgs{Out: t.Experts, X: experts, Rows: t.Rows})
		list.Add(kernel.TakeArgs{Out: t.Weights, X: weights, Rows: t.Rows})
	}
	if t.Counts.Given() {
		list.Add(kernel.TallyArgs{Counts: t.Counts, IDs: experts, Seen: t.Seen})
	}
}

// ExpertTap returns the tensors with which layer i's choice of experts is recorded or replaced.
func (g *Choices) ExpertTap(i int) ExpertTap {
	t := ExpertTap{Rows: g.out.Rows, Places: g.mixed, Counts: g.tally.layer(i), Seen: g.seen}
	if r := g.out.Recorded; i < len(r) {
		t.Experts, t.Weights = r[i].Experts, r[i].Weights
	}
	mixes := func(l int) bool { return g.shape.Layers[l].Experts }
	t.GivenExperts = g.part(g.experts, i, g.shape.Chosen, mixes)
	t.GivenWeights = g.part(g.weights, i, g.shape.Chosen, mixes)
	return t
}

// KeepHidden records the residual rows after layer i.
func (g *Choices) KeepHidden(list *kernel.Builder, i int, rows kernel.Tensor) {
	if r := g.out.Recorded; i < len(r) && r[i].Hidden.Given() {
		list.Add(kernel.TakeArgs{Out: r[i].Hidden, X: rows, Rows: g.out.Rows})
	}
}

// FillChoices lists the recorded rows, ordered by request, and writes the choices of replayed rows.
func (in *Input) FillChoices(block attn.Block) error {
	if err := block.FillRecorded(in.Batch.Batch); err != nil {
		return err
	}
	if in.Plan.Replayed == 0 {
		return nil
	}
	at := 0
	for r := range in.Batch.Batch.Requests {
		q := &in.Batch.Batch.Requests[r]
		for t := q.ReplayFrom; t < q.ReplayFrom+q.Replays; t++ {
			row, err := attn.RowOf(in.Plan, r, t)
			if err != nil {
				return err
			}
			position := in.Batch.Batch.FirstPosition(in.Config, r) + t
			x := replayedRow{at: at, row: row, position: position}
			if err := in.fillGiven(block, in.Replays[r], x); err != nil {
				return fmt.Errorf("request %d: %w", r, err)
			}
			at++
		}
	}
	return nil
}

// replayedRow is one replayed row: its index among the replayed rows, its row number in the pass and its position in
// the sequence.
type replayedRow struct {
	at       int
	row      int32
	position int
}

// fillGiven writes the replayed choices of one row.
func (in *Input) fillGiven(block attn.Block, from *record.Replay, g replayedRow) error {
	part := func(name plan.ArrayName) []int32 {
		n := in.Plan.Input(name).Cols
		return block.Array(name)[g.at*n : (g.at+1)*n]
	}
	if in.Plan.Replay.Selections {
		place := part(plan.ReplayRows)
		if place[0] = -1; from.Selections {
			place[0] = g.row
			if err := from.FillSelections(part(plan.ReplaySelections), g.position, in.dense(g.row)); err != nil {
				return err
			}
		}
	}
	if in.Plan.Replay.Experts {
		place := part(plan.ReplayMixed)
		if place[0] = -1; from.Experts {
			place[0] = g.row
			from.FillExperts(part(plan.ReplayExperts), part(plan.ReplayWeights), g.position)
		}
	}
	return nil
}

// dense reports whether a row of the pass attends to every key.
func (in *Input) dense(row int32) bool { return in.Plan.DenseRow(int(row)) }
