package verify

import (
	"slices"

	"sparrow/internal/step"
)

// recorded keeps, for the prompt of one case, the hidden states of the last position and the selections of the last
// few.
type recorded struct {
	prompt int // tokens of the prompt
	pool   int // tokens of a pool if pools are selected; otherwise 0

	hidden     [][]float32       // [layers][hidden]
	selections map[int][][]int32 // selections of the last positions for each layer, without entries of -1
}

// tail is the number of last positions for which golden files hold selections.
const tail = 4

func newRecorded(prompt, layers int) *recorded {
	return &recorded{prompt: prompt, hidden: make([][]float32, layers), selections: map[int][][]int32{}}
}

// keep stores the record of n tokens of the prompt from position first on. Rows in the dense form have no selection.
func (r *recorded) keep(res step.Result, first, n int) {
	for i := range n {
		back := r.prompt - first - i
		if back > tail {
			continue
		}
		for layer := range r.hidden {
			if back == 1 {
				r.hidden[layer] = slices.Clone(res.Hidden(layer, i))
			}
			picked := res.Selected(layer, i)
			if picked == nil {
				continue
			}
			if r.selections[layer] == nil {
				r.selections[layer] = make([][]int32, tail)
			}
			picked = r.tokens(picked, first+i)
			r.selections[layer][tail-back] = slices.DeleteFunc(slices.Clone(picked), func(p int32) bool {
				return p < 0
			})
		}
	}
}

// tokens returns the tokens that the row of a position attends to: the selected tokens or, if pools are selected, the
// tokens of the selected pools and the tokens after the last complete pool.
func (r *recorded) tokens(picked []int32, position int) []int32 {
	if r.pool == 0 {
		return picked
	}
	var out []int32
	for _, p := range picked {
		for j := 0; p >= 0 && j < r.pool; j++ {
			out = append(out, p*int32(r.pool)+int32(j))
		}
	}
	for p := (position + 1) / r.pool * r.pool; p <= position; p++ {
		out = append(out, int32(p))
	}
	return out
}
