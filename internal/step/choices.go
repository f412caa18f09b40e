package step

import (
	"sparrow/plan"
	"sparrow/record"
)

// Recording converts the choices that passes recorded for rows to records.
type Recording struct {
	What   plan.Record
	Layers []bool // layers whose selections are kept
	Shape  record.Shape
}

// Row returns the recorded choices of row i of a pass, which is at the given position of its sequence.
func (r *Recording) Row(result Result, i, position int) record.Row {
	row := record.Row{Position: position}
	for l := range r.Shape.Layers {
		if r.What.Selections && r.Layers[l] {
			row.Layers = append(row.Layers, r.layer(result, l, i, position))
		}
		if !r.What.Experts {
			continue
		}
		if ids, weights := result.Experts(l, i); ids != nil {
			row.Experts = append(row.Experts, record.Experts{Layer: l, IDs: record.AppendIDs(nil, ids),
				Weights: record.AppendFloats(nil, weights)})
		}
	}
	return row
}

func (r *Recording) layer(result Result, l, i, position int) record.Layer {
	s := &r.Shape.Layers[l]
	out := record.Layer{Layer: l, Keys: position + 1, Group: s.Group, Window: s.Window}
	if s.As != l {
		switch {
		case s.As >= 0:
			out.As = &s.As
		case s.Group > 0:
			out.All = true // no indexer selects from these groups, so the row attends to all of them
		}
		return out
	}
	selected, visible := result.Selected(l, i), r.Shape.Visible(l, position+1)
	if n := r.Shape.BlockKeys; r.Shape.Blocks > 0 && l == r.Shape.BlockLayer && visible > n*r.Shape.Blocks {
		out.Block = n
		out.Candidates = record.AppendPositions(nil, result.Blocks(l, i), n*max(s.Group, 1))
	}
	n := 0
	for n < len(selected) && selected[n] >= 0 {
		n++
	}
	if out.All = selected == nil || n == visible; out.All {
		return out
	}
	out.Selected = record.AppendPositions(make([]byte, 0, n+position/128+2), selected[:n], max(s.Group, 1))
	if r.What.Scores {
		out.Scores = record.AppendFloats(make([]byte, 0, 4*n), result.Scores(l, i)[:n])
	}
	return out
}
