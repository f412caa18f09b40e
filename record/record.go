// Package record represents the choices of a model's rows as data: the keys that each layer attended to and the experts
// that computed the row. Passes record rows, which are written as JSON in the format of docs/format/selections.md; rows
// that were recorded before are read as a Replay. The package does not depend on a model or a pass: a Shape describes
// the choices of layers.
package record

import "slices"

// Rows holds recorded rows of one sequence, in ascending order.
type Rows struct {
	Rows []Row `json:"rows"`
	// NotComputed lists the requested rows that were found in the cache, so that no keys or experts were chosen for
	// them.
	NotComputed []Range `json:"not_computed,omitempty"`
}

// With returns the rows followed by more; either may be nil.
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

// Range is a half-open range of positions: it includes the first number and excludes the second.
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
	Keys   int  `json:"keys"`             // number of tokens that the row could see
	All    bool `json:"all,omitempty"`    // the row attended to all keys; with a Group, to all complete groups
	As     *int `json:"as,omitempty"`     // layer whose selection this layer used
	Group  int  `json:"group,omitempty"`  // tokens of one compressed key; 0 if keys are tokens
	Window int  `json:"window,omitempty"` // number of latest tokens that the row also attended to; 0 without a window
	// Selected lists the selected positions in ascending order (AppendPositions); with a Group, the first token of each
	// group.
	Selected []byte `json:"selected,omitempty"`
	Scores   []byte `json:"scores,omitempty"` // scores of the selected keys (AppendFloats)
	// Candidates lists the blocks of Block keys from which later layers select, by the first token of each block
	// (AppendPositions); it is empty if later layers select from all keys.
	Candidates []byte `json:"candidates,omitempty"`
	Block      int    `json:"block,omitempty"`
}

// Experts holds the experts that one layer chose for a row.
type Experts struct {
	Layer   int    `json:"layer"`
	IDs     []byte `json:"ids"`     // expert ids in the order of choice (AppendIDs)
	Weights []byte `json:"weights"` // weight of each expert (AppendFloats)
}

// Shape describes the choices that the rows of a model make.
type Shape struct {
	TopK    int // maximum number of keys in a selection
	Dense   int // rows that see up to this many tokens may attend to all of them, even if TopK is smaller
	Experts int // number of experts in a layer with experts
	Chosen  int // number of experts that a row chooses
	Layers  []LayerShape
	// Blocks is the maximum number of blocks of BlockKeys keys that the layer BlockLayer selects for later layers; 0 if
	// there is no such layer.
	Blocks, BlockKeys, BlockLayer int
}

// LayerShape holds the choices of a row in one layer.
type LayerShape struct {
	// As is the index of the layer whose selection this layer uses, its own index if it selects; -1 without a
	// selection.
	As      int
	Group   int // tokens of one compressed key; 0 if keys are tokens, or if there are only window keys
	Window  int // window in tokens; 0 without a window
	Experts bool
}

// Selects reports whether layer i selects keys itself.
func (s *Shape) Selects(i int) bool { return s.Layers[i].As == i }

// Selecting returns the number of layers that select keys themselves.
func (s *Shape) Selecting() int {
	n := 0
	for i := range s.Layers {
		if s.Selects(i) {
			n++
		}
	}
	return n
}

// Mixing returns the number of layers that choose experts.
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

// Words returns the memory that a pass needs for the choices of one row, in words of 4 bytes: for selections with their
// scores, for experts with their weights, and for blocks.
func (s *Shape) Words() int { return 2*s.Selecting()*s.TopK + 2*s.Mixing()*s.Chosen + s.Blocks }
