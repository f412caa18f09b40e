package model

import (
	"fmt"

	"sparrow/attn"
)

// Picked appends the step row of every wanted token to list, in the order of in.Logits.
func (in *Input) Picked(list []int32, rows attn.Rows) ([]int32, error) {
	return picked(list, &in.Step, in.Logits, rows)
}

// Picked appends the row of every wanted token to list, in the order of in.Logits.
func (in *DraftInput) Picked(list []int32, rows attn.Rows) ([]int32, error) {
	return picked(list, &in.Step, in.Logits, rows)
}

func picked(list []int32, s *attn.Step, wanted []Pick, rows attn.Rows) ([]int32, error) {
	for _, p := range wanted {
		r, err := RowOf(s, p)
		if err == nil && rows.Position[r] != int32(s.Batch.FirstPosition(s.Config, p.Request)+p.Token) {
			err = absent(p)
		}
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// RowOf is the step row of a new token. A request's rows lie in at most two runs, one for each kind of prompt row, each in ascending order.
func RowOf(s *attn.Step, p Pick) (int32, error) {
	for i := range s.Plan.Segments {
		seg := &s.Plan.Segments[i]
		for _, span := range seg.Spans {
			if span.Request == p.Request && span.From <= p.Token && p.Token < span.To {
				return int32(seg.FirstRow + span.FirstRow + p.Token - span.From), nil
			}
		}
	}
	return 0, absent(p)
}

func absent(p Pick) error {
	return fmt.Errorf("model: forward: logits of new token %d of request %d, which the plan does not hold", p.Token, p.Request)
}
