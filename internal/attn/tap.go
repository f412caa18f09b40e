package attn

import "sparrow/kernel"

// Tap holds the tensors with which one layer's selection is recorded or replaced. Tensors that are not given are
// skipped.
type Tap struct {
	Rows     kernel.Tensor // i32 [R, 1]: rows that are recorded
	Selected kernel.Tensor // i32 [R, K]: receives the selections of these rows
	Scores   kernel.Tensor // f32 [R, K]: receives the scores of these selections
	Blocks   kernel.Tensor // i32 [R, most blocks]: receives the candidate blocks that the layer selects
	Places   kernel.Tensor // i32 [P, 1]: rows whose selection is replaced, -1: none
	Given    kernel.Tensor // i32 [P, K]: selections that replace those of rows Places
}

// Replace overwrites rows Places of the selections, selected [T, K], with the given selections. It may be called
// repeatedly.
func (t *Tap) Replace(list *kernel.Builder, selected kernel.Tensor) {
	if t.Given.Given() {
		list.Add(kernel.PutArgs{Out: selected, X: t.Given, Rows: t.Places})
	}
}

// Record copies selections [T, K] and their scores [T, K] of the recorded rows. If bounds are given, each rank has only
// its own rows, which are first copied to all ranks.
func (t *Tap) Record(list *kernel.Builder, selected, scores kernel.Tensor, bounds []int) {
	t.record(list, bounds, [2]kernel.Tensor{t.Selected, selected}, [2]kernel.Tensor{t.Scores, scores})
}

// RecordBlocks copies the candidate blocks [T, most] that a layer selects, for the recorded rows.
func (t *Tap) RecordBlocks(list *kernel.Builder, blocks kernel.Tensor, bounds []int) {
	t.record(list, bounds, [2]kernel.Tensor{t.Blocks, blocks})
}

func (t *Tap) record(list *kernel.Builder, bounds []int, pairs ...[2]kernel.Tensor) {
	for _, p := range pairs {
		x := struct{ out, from kernel.Tensor }{p[0], p[1]}
		if !x.out.Given() {
			continue
		}
		if bounds != nil {
			list.Add(kernel.ShareArgs{X: x.from, Bounds: bounds})
		}
		list.Add(kernel.TakeArgs{Out: x.out, X: x.from, Rows: t.Rows})
	}
}
