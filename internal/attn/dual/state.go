package dual

import (
	"fmt"

	"sparrow/kernel"
)

// A sequence's state is, for each compressor, a ring of raw rows: the projections of its latest tokens, where position
// p has row p mod ring. The entry of a group is computed from raw rows of the pass and of the ring; its bits do not
// depend on which of them come from the ring.
//
// A ring has twice as many rows as an entry needs, so that a sequence can be truncated by as many tokens as a group
// has. Rows of truncated tokens are overwritten before they are read, because the row of a position is fixed.
const ringGroups = 2

// ringOf returns the number of rows of a ring: 16 for ratio 4, whose groups also read the previous group, and 256 for
// ratio 128.
func ringOf(ratio int) int {
	if Overlapped(ratio) {
		return 2 * ringGroups * ratio
	}
	return max(ringGroups*ratio, leastRing)
}

// leastRing is the minimum number of rows of a ring, so that sequences with small groups can also be truncated by a few
// tokens.
const leastRing = 16

// firstNeeded returns the first position whose raw row a sequence of n tokens may still read.
func firstNeeded(n, ratio int) int {
	first := n / ratio * ratio
	if Overlapped(ratio) {
		first -= ratio
	}
	return max(first, 0)
}

// State is the compressor state of one sequence: a slot of the model's rings.
type State struct {
	of    *States
	slot  int
	len   int // number of tokens
	low   int // first position whose raw row may be in the rings
	draft draftMark
	high  int // end of the range of positions written since the sequence began
}

// States holds the rings of all sequences, layer by layer. Slots are reused. Reserve allocates slots for the expected
// number of sequences; for more sequences, larger rings are allocated.
type States struct {
	dev    kernel.Device
	layers []*Weights
	slots  int
	free   []int
	rings  []Rings // one for each layer
	// OnGrow, if set, is called with the new number of slots.
	OnGrow func(slots int) error
}

// Rings are the raw rows of one layer, f32 [rows, 2*width]: values, then gates.
type Rings struct{ Main, Index kernel.Tensor }

// Each calls visit for the tensors that are given.
func (r Rings) Each(visit func(kernel.Tensor)) {
	for _, t := range [2]kernel.Tensor{r.Main, r.Index} {
		if t.Given() {
			visit(t)
		}
	}
}

func newStates(dev kernel.Device, layers []*Weights) *States {
	return &States{dev: dev, layers: layers}
}

// New makes the state of an empty sequence.
func (s *States) New() (*State, error) {
	if len(s.free) == 0 {
		if err := s.Reserve(max(4, 2*s.slots)); err != nil {
			return nil, fmt.Errorf("dual: state: %w", err)
		}
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return &State{of: s, slot: slot}, nil
}

// Restore makes the state of a sequence that continues after n cached tokens, which are whole pages. The last window
// page of these tokens has the raw rows that the next group reads.
func (s *States) Restore(n, page int, windows []int32, caches []Cache) (*State, error) {
	st, err := s.New()
	if err != nil || n == 0 {
		return st, err
	}
	if err := s.restore(st, n, page, windows, caches); err != nil {
		st.Release()
		return nil, fmt.Errorf("dual: restore a state after %d tokens: %w", n, err)
	}
	return st, nil
}

func (s *States) restore(st *State, n, page int, windows []int32, caches []Cache) error {
	last := n/max(page, 1) - 1
	if page == 0 || n%page != 0 || n < 0 || last >= len(windows) || windows[last] < 0 {
		return fmt.Errorf("%d window pages of %d tokens each were given; want whole pages, including the "+
			"last one",
			len(windows), page)
	}
	from, to := int(windows[last])*TailRows, st.slot*ringOf(IndexRatio)+(n-TailRows)%ringOf(IndexRatio)
	for i := range s.layers {
		tails, rings := caches[i].Tails, s.rings[i]
		for _, t := range [2][2]kernel.Tensor{{tails.Main, rings.Main}, {tails.Index, rings.Index}} {
			if !t[0].Given() {
				continue
			}
			if from+TailRows > t[0].Rows {
				return fmt.Errorf("window page %d does not exist; there are %d", windows[last], t[0].Rows/TailRows)
			}
			if err := s.dev.Copy(kernel.CopyArgs{Out: t[1].Slice(to, to+TailRows),
				X: t[0].Slice(from, from+TailRows)}); err != nil {
				return fmt.Errorf("layer %d: %w", i, err)
			}
		}
	}
	st.len, st.low, st.high = n, n-TailRows, n
	return nil
}

// Held returns the number of states that were made and not released.
func (s *States) Held() int { return s.slots - len(s.free) }

// Slots returns the number of sequences for which the rings have space.
func (s *States) Slots() int { return s.slots }

// Reserve allocates slots for the given number of sequences and keeps the rows of existing states.
func (s *States) Reserve(slots int) error {
	if slots <= s.slots {
		return nil
	}
	grown := make([]Rings, len(s.layers))
	if err := s.grow(grown, slots); err != nil {
		s.freeRings(grown)
		return err
	}
	s.freeRings(s.rings)
	for slot := slots - 1; slot >= s.slots; slot-- {
		s.free = append(s.free, slot)
	}
	s.rings, s.slots = grown, slots
	if s.OnGrow != nil {
		return s.OnGrow(slots)
	}
	return nil
}

// grow allocates larger rings in `to` and copies the rows of existing states.
func (s *States) grow(to []Rings, slots int) (err error) {
	for i, w := range s.layers {
		var old Rings
		if s.rings != nil {
			old = s.rings[i]
		}
		if w.Compress != nil && w.Compress.Gates != nil {
			if to[i].Main, err = s.growRing(old.Main, slots, w.Compress); err != nil {
				return err
			}
		}
		if w.Index != nil && w.Index.Compress.Values != nil {
			if to[i].Index, err = s.growRing(old.Index, slots, &w.Index.Compress); err != nil {
				return err
			}
		}
	}
	return nil
}

func (s *States) freeRings(list []Rings) {
	for _, r := range list {
		r.Each(func(t kernel.Tensor) { s.dev.Free(t.Buf) })
	}
}

func (s *States) growRing(old kernel.Tensor, slots int, c *Compressor) (kernel.Tensor, error) {
	t, err := kernel.New(s.dev, kernel.F32, slots*ringOf(c.Ratio), 2*c.width())
	if err != nil || !old.Given() {
		return t, err
	}
	return t, s.dev.Copy(kernel.CopyArgs{Out: t.Slice(0, old.Rows), X: old})
}

// Of returns st as a State if it belongs to these rings and was not released, otherwise an error.
func (s *States) Of(st any, sequence int) (*State, error) {
	x, ok := st.(*State)
	switch {
	case !ok || x == nil || x.of != s:
		return nil, fmt.Errorf("sequence %d has no state of this model; make one with NewState", sequence)
	case x.slot < 0:
		return nil, fmt.Errorf("the state of sequence %d was released", sequence)
	}
	return x, nil
}

// Len returns the number of tokens that the state covers.
func (s *State) Len() int { return s.len }

// Clone copies the rings to a new slot.
func (s *State) Clone() (*State, error) {
	out, err := s.of.New()
	if err != nil {
		return nil, fmt.Errorf("dual: clone state: %w", err)
	}
	out.len, out.low, out.high = s.len, s.low, s.high
	for i, r := range s.of.rings {
		r.Each(func(t kernel.Tensor) {
			n := t.Rows / s.of.slots
			if err == nil {
				err = s.of.dev.Copy(kernel.CopyArgs{Out: t.Slice(out.slot*n, (out.slot+1)*n),
					X: t.Slice(s.slot*n, (s.slot+1)*n)})
			}
		})
		if err != nil {
			out.Release()
			return nil, fmt.Errorf("dual: clone state: layer %d: %w", i, err)
		}
	}
	return out, nil
}

// Truncate removes all tokens from number n on. It returns an error if the rings no longer have every raw row of the
// group that is incomplete at n. They always have them for n = 0, and for the last 9 tokens.
func (s *State) Truncate(n int) error {
	if n < 0 || n > s.len {
		return fmt.Errorf("dual: state: %d tokens cannot be truncated to %d; want 0 to %d", s.len, n, s.len)
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

// holds checks that the rings have the rows that a sequence of n tokens may still read.
func (s *State) holds(n int) error {
	for _, w := range s.of.layers {
		if w.Ratio == 0 {
			continue
		}
		if first, held := firstNeeded(n, w.Ratio), max(s.low, s.high-ringOf(w.Ratio)); first < n && first < held {
			return fmt.Errorf("dual: state: to continue after %d tokens, ratio %d needs position %d, but the state "+
				"was written up to %d "+
				"and holds positions from %d on: compute the sequence again", n, w.Ratio, first, s.high, held)
		}
	}
	return nil
}

// Begin records that n further rows are about to be written. If the pass fails, the rings may hold some of these rows.
func (s *State) Begin(n int) { s.high = max(s.high, s.len+n) }

// Advance adds n tokens to the length of the sequence.
func (s *State) Advance(n int) { s.len += n }

// Release frees the slot.
func (s *State) Release() {
	if s.slot >= 0 {
		s.of.free = append(s.of.free, s.slot)
		s.slot = -1
	}
}

// Check returns an error unless a sequence whose next token is at position first can continue from this state.
func (s *State) Check(sequence, first int) error {
	if s.len != first {
		return fmt.Errorf("sequence %d continues at position %d, but its state covers %d "+
			"tokens", sequence, first, s.len)
	}
	if err := s.holds(first); err != nil {
		return fmt.Errorf("sequence %d: %w", sequence, err)
	}
	return nil
}

// RawBytes returns the size in bytes of one raw row, from which entries of dim values are computed: float32 values and
// gates, for each half.
func RawBytes(ratio, dim int) int {
	if Overlapped(ratio) {
		dim *= 2
	}
	return 2 * dim * 4
}

// RingBytes returns the size in bytes of one sequence's ring of raw rows, from which entries of dim values are
// computed.
func RingBytes(ratio, dim int) int { return ringOf(ratio) * RawBytes(ratio, dim) }
