package v4

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/model"
	"sparrow/plan"
)

// A sequence's state is, for each compressor, a ring of raw rows: the projections of its latest tokens, row p mod ring for position p. A
// group that closes reads the rows it needs from this step and from the ring; the bits of an entry do not depend on which.
//
// Twice what a group needs is kept, so that as many tokens as a group has can be taken back: rows are named by position, and what was
// written for tokens that were taken back is written again before it is read.
const ringGroups = 2

// ringOf is the number of rows kept for a ratio: 16 for ratio 4, whose groups also read the one before, and 256 for ratio 128.
func ringOf(ratio int) int {
	if overlapped(ratio) {
		return 2 * ringGroups * ratio
	}
	return ringGroups * ratio
}

// firstNeeded is the first position whose raw row a sequence of n tokens still needs.
func firstNeeded(n, ratio int) int {
	first := n / ratio * ratio
	if overlapped(ratio) {
		first -= ratio
	}
	return max(first, 0)
}

// State is the compressor state of one sequence: a slot of the model's rings.
type State struct {
	m     *Model
	slot  int
	len   int // tokens
	low   int // no row before this position is in the rings
	draft draftMark
	high  int // one more than the last position ever written since the sequence began
}

// stateMemory holds the rings of all sequences, layer by layer. Slots are reused; the rings grow when none is free.
type stateMemory struct {
	slots int
	free  []int
	rings []rings // one for each layer
	iota  kernel.Scratch
}

// rings are the raw rows of one layer, f32 [slots*ring, 2*width]: values, then gates.
type rings struct{ main, index kernel.Tensor }

// NewState makes the state of an empty sequence.
func (m *Model) NewState() (model.State, error) {
	slot, err := m.takeSlot()
	if err != nil {
		return nil, fmt.Errorf("v4: state: %w", err)
	}
	return &State{m: m, slot: slot}, nil
}

// Restore makes the state of a sequence that goes on behind n tokens of the cache, a whole number of pages: the last of their window pages holds
// the raw rows that the next group reads.
func (m *Model) Restore(n int, windows []int32) (model.State, error) {
	s, err := m.NewState()
	if err != nil || n == 0 {
		return s, err
	}
	if err := m.restore(s.(*State), n, windows); err != nil {
		s.Release()
		return nil, fmt.Errorf("v4: restore a state behind %d tokens: %w", n, err)
	}
	return s, nil
}

func (m *Model) restore(s *State, n int, windows []int32) error {
	last := n/max(m.pageTokens, 1) - 1
	if m.pageTokens == 0 || n%m.pageTokens != 0 || n < 0 || last >= len(windows) || windows[last] < 0 {
		return fmt.Errorf("%d window pages, of %d tokens each; want a whole number of pages, and the last one given", len(windows), m.pageTokens)
	}
	from, to := int(windows[last])*tailRows, s.slot*ringOf(indexRatio)+(n-tailRows)%ringOf(indexRatio)
	for i := range m.layers {
		tails, rings := m.caches[i].tails, m.states.rings[i]
		for _, t := range [2][2]kernel.Tensor{{tails.main, rings.main}, {tails.index, rings.index}} {
			if !t[0].Given() {
				continue
			}
			if from+tailRows > t[0].Rows {
				return fmt.Errorf("window page %d, there are %d", windows[last], t[0].Rows/tailRows)
			}
			if err := m.copyRows(t[1].Slice(to, to+tailRows), t[0], from); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
		}
	}
	s.len, s.low, s.high = n, n-tailRows, n
	return nil
}

// StateBytes is the memory of one state: its rings of every layer, and of the drafting block where it is used.
func (m *Model) StateBytes(cfg *plan.Config) int64 {
	n := m.sizes(cfg).State
	if entry, _, err := layouts(cfg); err == nil && m.draft != nil && cfg.N > 1 {
		n += int64(entry.PageBytes(draftRing))
	}
	return n
}

// States counts the states that were made and not released.
func (m *Model) States() int { return m.states.slots - len(m.states.free) }

func (m *Model) takeSlot() (int, error) {
	s := &m.states
	if len(s.free) == 0 {
		if err := m.growStates(max(4, 2*s.slots)); err != nil {
			return 0, err
		}
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return slot, nil
}

// growStates makes room for more sequences and keeps what the present ones have.
func (m *Model) growStates(slots int) error {
	s := &m.states
	grown := make([]rings, len(m.layers))
	for i := range m.layers {
		a := &m.layers[i].attn
		var old rings
		if s.rings != nil {
			old = s.rings[i]
		}
		var err error
		if a.compress != nil {
			if grown[i].main, err = m.growRing(old.main, slots, a.compress); err != nil {
				return err
			}
		}
		if a.index != nil {
			if grown[i].index, err = m.growRing(old.index, slots, &a.index.compress); err != nil {
				return err
			}
		}
	}
	for _, r := range s.rings {
		m.freeRings(r)
	}
	for slot := slots - 1; slot >= s.slots; slot-- {
		s.free = append(s.free, slot)
	}
	s.rings, s.slots = grown, slots
	return m.growDrafts(slots)
}

func (m *Model) freeRings(r rings) {
	for _, t := range [2]kernel.Tensor{r.main, r.index} {
		if t.Given() {
			m.dev.Free(t.Buf)
		}
	}
}

func (m *Model) growRing(old kernel.Tensor, slots int, c *compressor) (kernel.Tensor, error) {
	t, err := kernel.New(m.dev, kernel.F32, slots*ringOf(c.ratio), 2*c.width())
	if err != nil || !old.Given() {
		return t, err
	}
	return t, m.copyRows(t.Slice(0, old.Rows), old, 0)
}

// copyRows copies rows of src, from row first on, to all rows of dst.
func (m *Model) copyRows(dst, src kernel.Tensor, first int) error {
	list := make([]int32, dst.Rows)
	for i := range list {
		list[i] = int32(first + i)
	}
	rows, err := m.states.iota.Take(kernel.I32, len(list), 1)
	if err != nil {
		return err
	}
	if err := kernel.WriteI32(m.dev, rows, list); err != nil {
		return err
	}
	return m.dev.Take(kernel.TakeArgs{Out: dst, X: src, Rows: rows})
}

// Len is how many tokens the state stands for.
func (s *State) Len() int { return s.len }

// Clone copies the rings to a slot of their own.
func (s *State) Clone() (model.State, error) {
	slot, err := s.m.takeSlot()
	if err != nil {
		return nil, fmt.Errorf("v4: clone state: %w", err)
	}
	out := &State{m: s.m, slot: slot, len: s.len, low: s.low, high: s.high}
	for i := range s.m.layers {
		for _, t := range [2]kernel.Tensor{s.m.states.rings[i].main, s.m.states.rings[i].index} {
			if !t.Given() {
				continue
			}
			n := t.Rows / s.m.states.slots
			if err := s.m.copyRows(t.Slice(slot*n, (slot+1)*n), t, s.slot*n); err != nil {
				out.Release()
				return nil, fmt.Errorf("v4: clone state: layer %d: %w", i, err)
			}
		}
	}
	return out, nil
}

// Truncate forgets the tokens from n on. It works as long as the rings still hold every row that the group open at n needs: always for the
// last 9 tokens, and for 0.
func (s *State) Truncate(n int) error {
	if n < 0 || n > s.len {
		return fmt.Errorf("v4: state: %d tokens cannot become %d", s.len, n)
	}
	if n == 0 {
		s.len, s.low, s.high, s.draft = 0, 0, 0, draftMark{}
		return nil
	}
	if err := s.holds(n); err != nil {
		return err
	}
	s.len = n
	return nil
}

// holds reports whether the rings have what a sequence of n tokens needs.
func (s *State) holds(n int) error {
	for i := range s.m.layers {
		ratio := s.m.layers[i].ratio
		if ratio == 0 {
			continue
		}
		if first, held := firstNeeded(n, ratio), max(s.low, s.high-ringOf(ratio)); first < n && first < held {
			return fmt.Errorf("v4: state: to go on after %d tokens, ratio %d needs position %d, but the state was written up to %d and holds positions from %d on: compute the sequence again",
				n, ratio, first, s.high, held)
		}
	}
	return nil
}

// Release gives the slot back.
func (s *State) Release() {
	if s.slot >= 0 {
		s.m.states.free = append(s.m.states.free, s.slot)
		s.slot = -1
	}
}

// statesOf checks the states of a step: each must stand where its sequence continues.
func (m *Model) statesOf(in *model.Input) ([]*State, error) {
	if len(in.States) != len(in.Tokens) {
		return nil, fmt.Errorf("v4: forward: %d states for %d sequences; make one with NewState for each sequence", len(in.States), len(in.Tokens))
	}
	out := m.step.states[:0]
	for r, st := range in.States {
		s, ok := st.(*State)
		first := in.Batch.FirstPosition(in.Config, r)
		switch {
		case !ok || s == nil || s.m != m:
			return nil, fmt.Errorf("v4: forward: sequence %d has no state of this model; make one with NewState", r)
		case s.slot < 0:
			return nil, fmt.Errorf("v4: forward: the state of sequence %d was released", r)
		case s.len != first:
			return nil, fmt.Errorf("v4: forward: sequence %d continues at position %d, its state stands at %d", r, first, s.len)
		}
		if err := s.holds(first); err != nil {
			return nil, fmt.Errorf("sequence %d: %w", r, err)
		}
		for _, other := range out {
			if other == s {
				return nil, fmt.Errorf("v4: forward: sequence %d shares its state with another one; use Clone", r)
			}
		}
		out = append(out, s)
	}
	m.step.states = out
	return out, nil
}
