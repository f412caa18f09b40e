package plan

import (
	"fmt"
	"slices"
)

// Sharing describes which caches of other layers the layers of DeepSeek-V4.1 read, and how many rows of n-gram tables
// are read for a token.
type Sharing struct {
	Entries []int `json:"entries"` // layers that compress tokens to entries
	Index   []int `json:"index"`   // layers that select among entries
	// Candidates is the number of the layer that selects Blocks blocks of BlockKeys entries each. Later layers over the
	// same entries select only within these blocks.
	Candidates int `json:"candidates"`
	Blocks     int `json:"blocks"`
	BlockKeys  int `json:"block_keys"`
	// Tables is the number of rows of n-gram tables that a token reads, in all tables together.
	Tables int `json:"tables,omitempty"`
}

// V41 reports whether layers of the model share entries and selections.
func (m *Model) V41() bool { return m.Family == DeepSeekV41 }

// lightRatio returns the number of tokens of an entry of the first compressed stream, which the indexer selects from:
// 4, or 2 in V4.1.
func (m *Model) lightRatio() int {
	if m.V41() {
		return 2
	}
	return ratio4
}

// indexRatio returns the minimum number of tokens that an indexer key covers.
func (m *Model) indexRatio() int {
	if m.V41() {
		for _, r := range m.Ratios {
			if r == 1 {
				return 1
			}
		}
	}
	return m.lightRatio()
}

// nearest returns the last layer of a list that is at or before layer l; -1 if layer l reads only the window.
func (m *Model) nearest(list []int, l int) int {
	out := -1
	if l < len(m.Ratios) && m.Ratios[l] > 0 {
		for _, s := range list {
			if s <= l {
				out = s
			}
		}
	}
	return out
}

// EntrySource returns the layer whose entries layer l reads, -1 for none.
func (m *Model) EntrySource(l int) int { return m.nearest(m.Sharing.Entries, l) }

// IndexSource returns the layer whose selection layer l uses, -1 for none.
func (m *Model) IndexSource(l int) int { return m.nearest(m.Sharing.Index, l) }

// SelectsWithin reports whether layer l selects inside candidates of another layer.
func (m *Model) SelectsWithin(l int) bool {
	return m.V41() && m.IndexSource(l) == l && l > m.Sharing.Candidates &&
		m.EntrySource(l) == m.EntrySource(m.Sharing.Candidates)
}

// says returns a text that lists the layers with entries of their own, the layers that select, and the layers that
// reuse the entries and selections of earlier layers.
func (s *Sharing) says(m *Model) string {
	var within []int
	for _, l := range s.Index {
		if m.SelectsWithin(l) {
			within = append(within, l)
		}
	}
	return fmt.Sprintf("layers %v store entries and layers %v select; every other layer with a ratio uses the "+
		"entries and the selection of the nearest such layer before it. Layer %d keeps the best %d blocks of %d "+
		"entries, among which layers %v select",
		s.Entries, s.Index, s.Candidates, s.Blocks, s.BlockKeys, within)
}

// LayerSays describes what layer l reads, if it shares other layers' data or has no cache of rows; else it is empty.
func (m *Model) LayerSays(l int) string {
	e, x := m.EntrySource(l), m.IndexSource(l)
	switch {
	case m.LinearAt(l):
		return "a state of each sequence: linear attention, which selects nothing and reads no rows"
	case !m.V41():
		return ""
	case e < 0:
		return "the window alone"
	case x != l:
		return fmt.Sprintf("entries of layer %d, selection of layer %d", e, x)
	case m.SelectsWithin(l):
		return fmt.Sprintf("entries of layer %d, selected inside the blocks that layer %d keeps", e,
			m.Sharing.Candidates)
	case l == m.Sharing.Candidates:
		return fmt.Sprintf("entries of layer %d, selected among all; keeps the best blocks for later layers", e)
	}
	return fmt.Sprintf("entries of layer %d, selected among all", e)
}

// BlocksOf returns the number of blocks of n entries, rounded up.
func (s *Sharing) BlocksOf(n int) int { return (n + s.BlockKeys - 1) / s.BlockKeys }

// KeptOf returns how many of n entries are in the selected blocks; the last block may be incomplete.
func (s *Sharing) KeptOf(n int) int {
	if s.BlocksOf(n) <= s.Blocks {
		return n
	}
	return s.BlockKeys*(s.Blocks-1) + (n-1)%s.BlockKeys + 1
}

// checkSharing returns an error if the field Sharing of the model is invalid.
func (m *Model) checkSharing() error {
	s := &m.Sharing
	if !m.V41() {
		return nil
	}
	for l, r := range m.Ratios[:min(m.Layers, len(m.Ratios))] {
		e := m.EntrySource(l)
		if r > 0 && (r > 2 || e < 0 || m.Ratios[e] != r || m.IndexSource(l) < e) {
			return fmt.Errorf("plan: model description: layer %d (ratio %d) has no earlier layer whose entries and "+
				"selection it can share", l, r)
		}
	}
	if s.Blocks < 1 || s.BlockKeys < 1 || !slices.Contains(s.Index, s.Candidates) {
		return fmt.Errorf("plan: model description: the index keeps %d candidate blocks of %d entries from layer %d, "+
			"want 1 or more and a layer with an index", s.Blocks, s.BlockKeys,
			s.Candidates)
	}
	return nil
}

// sharedInputs adds the arrays of V4.1. Every row reads pages in place, so launches gather no entries.
func (w *Builder) sharedInputs() { w.sharedArrays(closingPairs(w, w.cfg.Model.lightRatio())) }

func (w *Builder) sharedArrays(pairs int) {
	p, m := w.plan, &w.cfg.Model
	p.each(TokenIDs, Positions, RowRequests, Slots, WindowLengths)
	p.array(WindowIndices, p.Rows, m.windowWidth())
	p.array(PageTable, p.Requests, p.TablePages)
	if slices.Contains(m.Ratios, 2) {
		p.each(Groups, Kept, KeepRows)
		p.array(CloseSources, pairs, 2)
		p.array(CloseSlots, pairs, 1)
		p.array(ClosePositions, pairs, 1)
	}
	if slices.Contains(m.Ratios, 1) {
		p.each(Entries, EntriesKept, EntrySlots)
	}
	p.each(BlockCounts, CandidateCounts, RowNumbers)
	p.array(TableRows, p.Rows, m.Sharing.Tables)
}

// reasonSharedPaged is the reason for the indexer path of V4.1's prompts.
var reasonSharedPaged = Reason{"dispatch 6", "prompt rows score keys in place: layers share them, and candidates " +
	"differ from row to row"}
