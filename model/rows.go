package model

import (
	"fmt"

	"sparrow/attn"
)

// Picked appends the step row of every wanted token to list, in the order of in.Logits.
func (in *Input) Picked(list []int32, rows attn.Rows) ([]int32, error) {
	for _, p := range in.Logits {
		r, err := in.rowOf(rows, p)
		if err != nil {
			return nil, err
		}
		list = append(list, r)
	}
	return list, nil
}

// rowOf is the step row of a new token. A request's rows lie in at most two runs, one for each kind of prompt row, each in ascending order.
func (in *Input) rowOf(rows attn.Rows, p Pick) (int32, error) {
	want := int32(in.Batch.FirstPosition(in.Config, p.Request) + p.Token)
	for _, s := range in.Plan.Segments {
		for _, span := range s.Spans {
			if span.Request == p.Request && span.From <= p.Token && p.Token < span.To {
				r := s.FirstRow + span.FirstRow + p.Token - span.From
				if rows.Position[r] == want {
					return int32(r), nil
				}
			}
		}
	}
	return 0, fmt.Errorf("model: forward: logits of new token %d of request %d, which the plan does not hold", p.Token, p.Request)
}
