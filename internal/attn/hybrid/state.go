package hybrid

import (
	"fmt"

	"sparrow/kernel"
	"sparrow/layout"
)

// A sequence's state consists of two parts. For each linear layer it has the recurrent state of the tokens and the last
// input rows of the convolution. For each other layer it has a ring of raw rows: index keys and gates of the tokens in
// the incomplete pool, where position p has row p mod ring. A state is valid only for the current length of its
// sequence and cannot be truncated, except to length 0. Rows of drafts are held back: their inputs are stored, and the
// next pass updates the state with the accepted rows only.

// ringRows is the number of raw rows in a ring. The key of a pool is computed from its last row and three earlier rows.
const ringRows = 4 * Pool

// LinearState holds n states of a linear layer: states of sequences, or snapshots.
type LinearState struct {
	Conv  kernel.Tensor // f32 [n*3, 3*width]
	Delta kernel.Tensor // f32 [n*heads*128, 128]: [key channels, value channels] for every head
}

// NewLinearState allocates the memory of n states; width is the size of all heads together.
func NewLinearState(mem kernel.Memory, n, width int) (s LinearState, err error) {
	if s.Conv, err = kernel.New(mem, kernel.F32, n*kernel.ConvRows, 3*width); err == nil {
		s.Delta, err = kernel.New(mem, kernel.F32, n*width, kernel.DeltaDim)
	}
	return s, err
}

// LinearBytes returns the size in bytes of one state of a linear layer.
func LinearBytes(width int) int { return 4 * (kernel.ConvRows*3*width + width*kernel.DeltaDim) }

// RingBytes is the size in bytes of one sequence's ring of a layer with an indexer.
const RingBytes = 4 * ringRows * 2 * layout.IndexDim

// Each calls visit for the tensors that are given, with the number of rows of one state.
func (s LinearState) Each(visit func(t kernel.Tensor, rows int)) {
	if s.Conv.Given() {
		visit(s.Conv, kernel.ConvRows)
	}
	if s.Delta.Given() {
		visit(s.Delta, s.Conv.Cols/3)
	}
}

// Free frees the memory.
func (s LinearState) Free(mem kernel.Memory) {
	s.Each(func(t kernel.Tensor, _ int) { mem.Free(t.Buf) })
}

// State is the state of one sequence: a slot in States.
type State struct {
	of   *States
	slot int
	len  int  // number of tokens
	base int  // number of tokens that the state includes; later tokens are held back
	lost bool // a pass that may have changed the state has begun and not been committed
}

// States holds the states of all sequences, layer by layer. Slots are reused. Reserve allocates slots for the expected
// number of sequences; for more sequences, larger memory is allocated.
type States struct {
	dev    kernel.Device
	kind   []bool // for each layer: true if it is linear
	width  int
	slots  int
	free   []int
	linear []LinearState   // states of linear layers
	rings  []kernel.Tensor // rings of the other layers
	held   int             // maximum number of held-back rows of a sequence; 0 for none
	back   []LinearState   // held-back rows of linear layers: [slots*held, 3*width] and [slots*held, inputs]
	moved  int             // number of times that the memory was allocated again at another address
}

func newStates(dev kernel.Device, linear []bool, width int) *States {
	return &States{dev: dev, kind: linear, width: width}
}

// Hold allocates the memory for the given number of held-back rows of every sequence; 0 frees it. States made before
// the call become invalid.
func (s *States) Hold(rows int) error {
	if s.held == rows {
		return nil
	}
	for i := range s.back {
		s.back[i].Free(s.dev)
	}
	s.held, s.back = rows, nil
	s.moved++
	var err error
	s.back, err = s.newHeld(s.slots)
	return err
}

// newHeld allocates memory for held-back rows in the given number of slots.
func (s *States) newHeld(slots int) ([]LinearState, error) {
	out := make([]LinearState, len(s.kind))
	for i, linear := range s.kind {
		if !linear || s.held == 0 || slots == 0 {
			continue
		}
		var err error
		if out[i].Conv, err = kernel.New(s.dev, kernel.F32, slots*s.held, 3*s.width); err == nil {
			out[i].Delta, err = kernel.New(s.dev, kernel.F32, slots*s.held, kernel.HeldWidth(s.width/kernel.DeltaDim))
		}
		if err != nil {
			for j := range out[:i+1] {
				out[j].Free(s.dev)
			}
			return nil, err
		}
	}
	return out, nil
}

func (s *States) heldRows(layer int) LinearState {
	if s.back == nil {
		return LinearState{}
	}
	return s.back[layer]
}

// HeldBytes returns the size in bytes of a held-back row of a linear layer.
func HeldBytes(width int) int { return 4 * (3*width + kernel.HeldWidth(width/kernel.DeltaDim)) }

// Moved returns how often the memory was allocated again at another address.
func (s *States) Moved() int { return s.moved }

// New makes the state of an empty sequence.
func (s *States) New() (*State, error) {
	if len(s.free) == 0 {
		if err := s.Reserve(max(4, 2*s.slots)); err != nil {
			return nil, fmt.Errorf("hybrid: state: %w", err)
		}
	}
	slot := s.free[len(s.free)-1]
	s.free = s.free[:len(s.free)-1]
	return &State{of: s, slot: slot}, nil
}

// Restore makes the state of a sequence that continues after n cached tokens, which are whole pages. The last window
// page of these tokens has a snapshot. Pages contain whole pools, so no raw row is needed.
func (s *States) Restore(n, page int, windows []int32, caches []Cache) (*State, error) {
	st, err := s.New()
	if err != nil || n == 0 {
		return st, err
	}
	last := n/max(page, 1) - 1
	if page == 0 || n%page != 0 || n < 0 || last >= len(windows) || windows[last] < 0 {
		err = fmt.Errorf("%d window pages of %d tokens each were given; want whole pages, including the last "+
			"one",
			len(windows), page)
	}
	for i := 0; err == nil && i < len(caches); i++ {
		err = s.copy(s.linear[i], st.slot, caches[i].Kept, int(windows[last]))
	}
	if err != nil {
		st.Release()
		return nil, fmt.Errorf("hybrid: restore a state after %d tokens: %w", n, err)
	}
	st.len, st.base = n, n
	return st, nil
}

// copy copies one state of a linear layer.
func (s *States) copy(to LinearState, slot int, from LinearState, at int) error {
	for _, t := range [2]struct {
		to, from kernel.Tensor
		rows     int
	}{{to.Conv, from.Conv, kernel.ConvRows}, {to.Delta, from.Delta, s.width}} {
		if !t.to.Given() {
			continue
		}
		if (at+1)*t.rows > t.from.Rows {
			return fmt.Errorf("window page %d does not exist; there are %d", at, t.from.Rows/t.rows)
		}
		if err := s.dev.Copy(kernel.CopyArgs{Out: t.to.Slice(slot*t.rows, (slot+1)*t.rows),
			X: t.from.Slice(at*t.rows, (at+1)*t.rows)}); err != nil {
			return err
		}
	}
	return nil
}

// Held returns the number of states that were made and not released.
func (s *States) Held() int { return s.slots - len(s.free) }

// Slots returns the number of sequences for which the memory has space.
func (s *States) Slots() int { return s.slots }

// Reserve allocates slots for the given number of sequences and keeps existing states.
func (s *States) Reserve(slots int) error {
	if slots <= s.slots {
		return nil
	}
	linear, rings := make([]LinearState, len(s.kind)), make([]kernel.Tensor, len(s.kind))
	if err := s.grow(linear, rings, slots); err != nil {
		freeAll(s.dev, linear, rings)
		return err
	}
	back, err := s.newHeld(slots)
	if err == nil {
		err = s.copyHeld(back)
	}
	if err != nil {
		freeAll(s.dev, linear, rings)
		return err
	}
	for i := range s.back {
		s.back[i].Free(s.dev)
	}
	s.back = back
	s.moved++
	freeAll(s.dev, s.linear, s.rings)
	for slot := slots - 1; slot >= s.slots; slot-- {
		s.free = append(s.free, slot)
	}
	s.linear, s.rings, s.slots = linear, rings, slots
	return nil
}

// grow allocates larger memory in linear and rings and copies existing states.
func (s *States) grow(linear []LinearState, rings []kernel.Tensor, slots int) (err error) {
	for i, is := range s.kind {
		if !is {
			if rings[i], err = kernel.New(s.dev, kernel.F32, slots*ringRows, 2*layout.IndexDim); err != nil {
				return err
			}
			if s.slots > 0 {
				err = s.dev.Copy(kernel.CopyArgs{Out: rings[i].Slice(0, s.rings[i].Rows), X: s.rings[i]})
			}
		} else if linear[i], err = NewLinearState(s.dev, slots, s.width); err == nil {
			for slot := 0; err == nil && slot < s.slots; slot++ {
				err = s.copy(linear[i], slot, s.linear[i], slot)
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// copyHeld copies held-back rows to larger memory.
func (s *States) copyHeld(to []LinearState) error {
	for i := range s.back {
		for _, t := range [2][2]kernel.Tensor{{to[i].Conv, s.back[i].Conv}, {to[i].Delta, s.back[i].Delta}} {
			if !t[1].Given() {
				continue
			}
			if err := s.dev.Copy(kernel.CopyArgs{Out: t[0].Slice(0, t[1].Rows), X: t[1]}); err != nil {
				return err
			}
		}
	}
	return nil
}

func freeAll(mem kernel.Memory, linear []LinearState, rings []kernel.Tensor) {
	for i := range linear {
		linear[i].Free(mem)
		if rings[i].Given() {
			mem.Free(rings[i].Buf)
		}
	}
}

// Of returns st as a State if it belongs to these states and was not released, otherwise an error.
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

// Clone copies the state to a new slot.
func (s *State) Clone() (*State, error) {
	out, err := s.of.New()
	if err != nil {
		return nil, fmt.Errorf("hybrid: clone state: %w", err)
	}
	out.len, out.base, out.lost = s.len, s.base, s.lost
	for i := 0; err == nil && i < len(s.of.kind); i++ {
		if ring := s.of.rings[i]; ring.Given() {
			err = s.of.dev.Copy(kernel.CopyArgs{Out: ring.Slice(out.slot*ringRows, (out.slot+1)*ringRows),
				X: ring.Slice(s.slot*ringRows, (s.slot+1)*ringRows)})
			continue
		}
		if err = s.of.copy(s.of.linear[i], out.slot, s.of.linear[i], s.slot); err != nil || s.of.held == 0 {
			continue
		}
		n, held := s.of.held, s.of.back[i]
		for _, t := range [2]kernel.Tensor{held.Conv, held.Delta} {
			if err == nil {
				err = s.of.dev.Copy(kernel.CopyArgs{Out: t.Slice(out.slot*n, (out.slot+1)*n),
					X: t.Slice(s.slot*n, (s.slot+1)*n)})
			}
		}
	}
	if err != nil {
		out.Release()
		return nil, fmt.Errorf("hybrid: clone state: %w", err)
	}
	return out, nil
}

// Truncate removes all tokens from number n on. Only held-back tokens, or all tokens, can be removed.
func (s *State) Truncate(n int) error {
	switch {
	case n < 0 || n > s.len:
		return fmt.Errorf("hybrid: state: %d tokens cannot be truncated to %d", s.len, n)
	case n == 0:
		s.len, s.base, s.lost = 0, 0, false
	case n < s.base || s.lost:
		return fmt.Errorf("hybrid: state: it covers %d tokens and cannot go back to %d; compute the sequence again",
			s.base, n)
	default:
		s.len = n
	}
	return nil
}

// Begin records that a pass is about to change the state.
func (s *State) Begin() { s.lost = true }

// Advance adds n tokens to the length of the sequence, after their pass was enqueued. The pass has updated the state
// with the rows that were held back before it, and with its own rows unless held is true.
func (s *State) Advance(n int, held bool) {
	if s.base = s.len; !held {
		s.base += n
	}
	s.len, s.lost = s.len+n, false
}

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
	if s.lost {
		return fmt.Errorf("sequence %d: a failed pass has changed its state; compute the sequence again", sequence)
	}
	return nil
}
