package verify

import (
	"slices"

	"sparrow/attn"
	"sparrow/kernel"
)

// record listens to a model and keeps, for the prompt of one case, the hidden states of the last position and the selections of the last
// few. It sees one sequence at a time.
type record struct {
	mem    kernel.Memory
	prompt int // tokens
	rows   attn.Rows

	hidden     [][]float32       // [layers][hidden]
	selections map[int][][]int32 // layer -> the last positions' selections, -1 dropped
}

// tail is for how many of the last positions golden files hold selections.
const tail = 4

func newRecord(mem kernel.Memory, prompt, layers int) *record {
	return &record{mem: mem, prompt: prompt, hidden: make([][]float32, layers), selections: map[int][][]int32{}}
}

// Begin notes which token each row is.
func (r *record) Begin(rows attn.Rows) error {
	r.rows = rows
	return nil
}

// Hidden keeps the row of the prompt's last token.
func (r *record) Hidden(layer int, h kernel.Tensor) error {
	i := slices.Index(r.rows.Position, int32(r.prompt-1))
	if i < 0 {
		return nil
	}
	r.hidden[layer] = make([]float32, h.Cols)
	return kernel.ReadF32(r.mem, r.hidden[layer], h.Slice(i, i+1))
}

// Selected keeps the rows of the prompt's last tokens.
func (r *record) Selected(layer, first int, positions kernel.Tensor) error {
	for i := range positions.Rows {
		back := r.prompt - int(r.rows.Position[first+i])
		if back < 1 || back > tail {
			continue
		}
		row := make([]int32, positions.Cols)
		if err := kernel.ReadI32(r.mem, row, positions.Slice(i, i+1)); err != nil {
			return err
		}
		if r.selections[layer] == nil {
			r.selections[layer] = make([][]int32, tail)
		}
		r.selections[layer][tail-back] = slices.DeleteFunc(row, func(p int32) bool { return p < 0 })
	}
	return nil
}
