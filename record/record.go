// Package record represents the choices of a model's rows as data: the keys that each layer attended to and the experts
// that computed the row. Passes record rows, which are written as JSON in the format of docs/format/selections.md; rows
// that were recorded before are read as a Replay. The package does not depend on a model or a pass: a Shape describes
// the choices of layers.
package record

import "slices"

// Rows are recorded rows of one sequence, in ascending order.
type Rows struct {
	Rows []Row `json:"rows"`
	// NotComputed are the requested rows that were found in the cache, so that nothing was chosen.
	NotComputed []Range `json:"not_computed,omitempty"`
}

// With adds rows that follow; both may be nil.
func (r *Rows) With(more *Rows) *Rows {
	if r == nil || more == nil {
		if r == nil && more != nil {
			return &Rows{Rows: slices.Clone(more.Rows), NotComputed: slices.Clone(more.NotComputed)}
		}
		return r
	}
	r.Rows, r.NotComputed = append(r.Rows, more.Rows...), append(r.NotComputed, more.NotComputed...)
	return r
}

// Range is positions from the first number to the second, half open.
type Range [2]int

// Row holds the choices of the row at one position.
type Row struct {
	Position int       `json:"position"`
	Layers   []Layer   `json:"layers,omitempty"`
	Experts  []Experts `json:"experts,omitempty"`
}

// Layer is the selection of one layer: Selected, or All, or the selection of layer As.
type Layer struct {
	Layer  int  `json:"layer"`
	Keys   int  `json:"keys"`             // tokens that the row could see
	All    bool `json:"all,omitempty"`    // it attended to all of them; with a Group, to all closed groups
	As     *int `json:"as,omitempty"`     // the layer whose selection it used
	Group  int  `json:"group,omitempty"`  // tokens of a compressed key; 0 where keys are tokens
	Window int  `json:"window,omitempty"` // how many of the last tokens it attended to as well; 0 where it has none
	// Selected are ascending positions (AppendPositions); with a Group, the first token of each.
	Selected []byte `json:"selected,omitempty"`
	Scores   []byte `json:"scores,omitempty"` // of the selected (AppendFloats)
	// Candidates are the keys from which later layers select, where the layer keeps some of them: blocks of Block keys,
	// by their first tokens (AppendPositions); none where it keeps all.
	Candidates []byte `json:"candidates,omitempty"`
	Block      int    `json:"block,omitempty"`
}

// Experts are the experts of one layer.
type Experts struct {
	Layer   int    `json:"layer"`
	IDs     []byte `json:"ids"`     // in the order of choice (AppendIDs)
	Weights []byte `json:"weights"` // (AppendFloats)
}

// Shape describes the choices that the rows of a model make.
type Shape struct {
	TopK    int // most keys of a selection
	Dense   int // rows that see up to that many tokens may attend to all of them, also where TopK is less
	Experts int // of a layer that has them
	Chosen  int // experts of a row
	Layers  []LayerShape
	// Blocks is the maximum number of blocks of BlockKeys keys that the layer BlockLayer selects for later layers; 0 if
	// there is no such layer.
	Blocks, BlockKeys, BlockLayer int
}

// LayerShape holds the choices of a row in one layer.
type LayerShape struct {
	As      int // the layer whose selection it uses, itself where it selects; -1 where there is none
	Group   int // tokens of a compressed key; 0 if keys are tokens, or if there are only window keys
	Window  int // 0 where there is none
	Experts bool
}

// Selects reports whether layer i selects keys itself.
func (s *Shape) Selects(i int) bool { return s.Layers[i].As == i }

// Selecting counts the layers that select.
func (s *Shape) Selecting() int {
	n := 0
	for i := range s.Layers {
		if s.Selects(i) {
			n++
		}
	}
	return n
}

// Mixing counts the layers that choose experts.
func (s *Shape) Mixing() int {
	n := 0
	for i := range s.Layers {
		if s.Layers[i].Experts {
			n++
		}
	}
	return n
}

// Visible returns the number of keys of layer i from which a row with the given number of tokens chooses.
func (s *Shape) Visible(i, tokens int) int { return tokens / max(s.Layers[i].Group, 1) }

// Words returns the memory that a pass needs for the choices of one row, in words of 4 bytes: selections with their
// scores, experts with their weights.
func (s *Shape) Words() int { return 2*s.Selecting()*s.TopK + 2*s.Mixing()*s.Chosen + s.Blocks }
