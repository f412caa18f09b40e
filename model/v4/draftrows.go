package v4

import (
	"fmt"

	"sparrow/model"
)

// draftRows are the rows of a pass of the drafting block that are computed, request by request, as host arrays.
type draftRows struct {
	token, position, hidden []int32
	row                     []int32 // in step order
	slot                    []int32 // of the row's entry in the rings
	lens                    []int32
	window                  []int32 // [rows, width]: slots of the entries a row sees
	width                   int
	wanted                  []int32 // of these rows, those whose logits are wanted
	last                    []int32 // of these rows, the last of each request
}

// fill chooses the rows: of each request the last ones, which later rows see, and lays out what they attend to.
func (d *draftRows) fill(in *model.DraftInput, m *Model, hidden int) error {
	for _, v := range []*[]int32{&d.token, &d.position, &d.hidden, &d.row, &d.slot, &d.lens, &d.window, &d.wanted} {
		*v = (*v)[:0]
	}
	window := m.config.Attention.Window
	d.width = roundUp(window, 64)
	d.last = d.last[:0]
	for r, tokens := range in.Tokens {
		st, err := m.draftState(in, r)
		if err != nil {
			return err
		}
		first, n := in.Batch.FirstPosition(in.Config, r), len(tokens)
		skip := max(n-window, 0)
		st.mark(m.draft.epoch, first, first+skip, first+n)
		for t := skip; t < n; t++ {
			row, err := model.RowOf(&in.Step, model.Pick{Request: r, Token: t})
			if err != nil {
				return err
			}
			if t >= len(in.Hidden[r]) || in.Hidden[r][t] < 0 || int(in.Hidden[r][t]) >= hidden {
				return fmt.Errorf("request %d: the hidden state of row %d is not among the %d rows of the pass before", r, t, hidden)
			}
			d.add(st, first+t, window)
			d.row, d.token, d.hidden = append(d.row, row), append(d.token, tokens[t]), append(d.hidden, in.Hidden[r][t])
		}
		d.last = append(d.last, int32(len(d.row)-1))
	}
	for _, p := range in.Logits {
		if p.Token != len(in.Tokens[p.Request])-1 {
			return fmt.Errorf("logits of row %d of request %d; only the last row of a request is drafted from", p.Token, p.Request)
		}
		d.wanted = append(d.wanted, d.last[p.Request])
	}
	return nil
}

// draftState is the state of a request.
func (m *Model) draftState(in *model.DraftInput, r int) (*State, error) {
	if r >= len(in.States) {
		return nil, fmt.Errorf("%d states for %d sequences", len(in.States), len(in.Tokens))
	}
	s, ok := in.States[r].(*State)
	if !ok || s == nil || s.m != m || s.slot < 0 {
		return nil, fmt.Errorf("sequence %d has no state of this model", r)
	}
	return s, nil
}

// mark notes that entries from kept to end are about to be written, of rows that begin at first. Entries before a gap are out of reach.
func (s *State) mark(epoch, first, kept, end int) {
	d := &s.draft
	if d.epoch != epoch || first > d.high || kept > first {
		*d = draftMark{epoch: epoch, low: kept}
	}
	d.low, d.high = min(d.low, kept), end
}

// add lays out the row of position p.
func (d *draftRows) add(s *State, p, window int) {
	base := int32(s.slot * draftRing)
	from := max(p-window+1, s.draft.low)
	d.position = append(d.position, int32(p))
	d.slot = append(d.slot, base+int32(p%draftRing))
	d.lens = append(d.lens, int32(p-from+1))
	for q := from; q <= p; q++ {
		d.window = append(d.window, base+int32(q%draftRing))
	}
	for range d.width - (p - from + 1) {
		d.window = append(d.window, -1)
	}
}
