// Package record represents the choices of a model's rows: the keys that each layer attended to, and the experts that
// computed the row. Recorded rows are written as JSON in the format of docs/format/selections.md. A Replay holds
// recorded rows whose choices a later pass repeats. A Shape describes which layers select keys and choose experts.
package record

import "slices"

// Rows holds recorded rows of one sequence in ascending order of position.
type Rows struct {
	Rows []Row `json:"rows"`
	// NotComputed lists the requested rows that were found in the cache and therefore have no choices.
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

// Range is a half-open range of positions: from Range[0] up to, but not including, Range[1].
type Range [2]int

// Row holds the choices of the row at one position of the sequence.
type Row struct {
	Position int       `json:"position"`
	Layers   []Layer   `json:"layers,omitempty"`
	Experts  []Experts `json:"experts,omitempty"`
}

// Layer is the selection of a row in one layer: the keys Selected, all keys, or the selection of layer As.
type Layer struct {
	Layer  int  `json:"layer"`
	Keys   int  `json:"keys"`             // number of tokens before and at the row's position
	All    bool `json:"all,omitempty"`    // the row attended to all keys; with a Group, to all complete groups
	As     *int `json:"as,omitempty"`     // layer whose selection this layer used
	Group  int  `json:"group,omitempty"`  // tokens per compressed key; 0 if each token has a key
	Window int  `json:"window,omitempty"` // number of latest tokens that the row also attended to; 0: none
	// Selected lists the selected positions (AppendPositions); with a Group, the first token of each group.
	Selected []byte `json:"selected,omitempty"`
	Scores   []byte `json:"scores,omitempty"` // scores of the keys in Selected (AppendFloats)
	// Candidates lists the blocks of Block keys from which later layers select, as the first token of each block
	// (AppendPositions). It is empty if later layers select from all keys.
	Candidates []byte `json:"candidates,omitempty"`
	Block      int    `json:"block,omitempty"`
}

// Experts holds the experts of a row in one layer.
type Experts struct {
	Layer   int    `json:"layer"`
	IDs     []byte `json:"ids"`     // expert ids in the order in which they were chosen (AppendIDs)
	Weights []byte `json:"weights"` // weight of each expert (AppendFloats)
}

// Shape describes which layers of a model select keys and choose experts.
type Shape struct {
	TopK    int // maximum number of keys in a selection
	Dense   int // a row with at most this many keys may attend to all of them, even if TopK is smaller
	Experts int // number of experts in a layer that has experts
	Chosen  int // number of experts per row
	Layers  []LayerShape
	// Blocks is the maximum number of blocks, of BlockKeys keys each, that layer BlockLayer selects for later layers.
	// It is 0 if there is no such layer.
	Blocks, BlockKeys, BlockLayer int
}

// LayerShape describes the choices in one layer.
type LayerShape struct {
	// As is the index of the layer whose selection this layer uses: its own index if it selects keys, -1 if it has no
	// selection.
	As      int
	Group   int // tokens per compressed key; 0 if each token has a key, or if only the window is attended to
	Window  int // tokens in the window; 0 if there is no window
	Experts bool
}

// Selects reports whether layer i selects keys itself.
func (s *Shape) Selects(i int) bool { return s.Layers[i].As == i }

// Selecting returns the number of layers that select keys.
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

// Visible returns the number of keys of layer i that a row with the given number of tokens selects from.
func (s *Shape) Visible(i, tokens int) int { return tokens / max(s.Layers[i].Group, 1) }

// Words returns the memory for the choices of one row in 32-bit words: selected keys and their scores, experts and
// their weights, and blocks.
func (s *Shape) Words() int { return 2*s.Selecting()*s.TopK + 2*s.Mixing()*s.Chosen + s.Blocks }
