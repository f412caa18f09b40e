package record

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// ExpertArray returns the experts of the first rows of a sequence as an array [rows, layers, chosen] for training. It
// has all layers of the model, with zeros for layers without experts.
func (r *Rows) ExpertArray(s *Shape, rows int) ([]int32, error) {
	if err := r.whole(rows); err != nil {
		return nil, err
	}
	out := make([]int32, rows*len(s.Layers)*s.Chosen)
	for i := range rows {
		for _, e := range r.Rows[i].Experts {
			if e.Layer < 0 || e.Layer >= len(s.Layers) || len(e.IDs) != 2*s.Chosen {
				return nil, fmt.Errorf("record: row %d has %d bytes of expert ids for layer %d, which does not fit "+
					"the model", i, len(e.IDs), e.Layer)
			}
			at := out[(i*len(s.Layers)+e.Layer)*s.Chosen:]
			for k := range s.Chosen {
				at[k] = int32(binary.LittleEndian.Uint16(e.IDs[2*k:]))
			}
		}
	}
	return out, nil
}

// SelectionArray returns the selections of the first rows of a sequence as an array [rows, layers, width] of key
// indices, ascending, with -1 after the last. It has the layers that select keys or use another layer's selection. A
// key is a token or, in layers with compressed keys, a group of tokens. width is Shape.TopK, or more if a row attends
// to more keys.
func (r *Rows) SelectionArray(s *Shape, rows int) (out []int32, layers, width int, err error) {
	if err := r.whole(rows); err != nil {
		return nil, 0, 0, err
	}
	var list []int
	width = s.TopK
	for i := range s.Layers {
		if s.Layers[i].As >= 0 {
			list = append(list, i)
		}
	}
	for i := range rows {
		for _, l := range r.Rows[i].Layers {
			if l.All {
				width = max(width, l.Keys/max(l.Group, 1))
			}
		}
	}
	out = slices.Repeat([]int32{-1}, rows*len(list)*width)
	for i := range rows {
		for n, layer := range list {
			if err := r.Rows[i].keys(out[(i*len(list)+n)*width:][:width], layer); err != nil {
				return nil, 0, 0, fmt.Errorf("record: row %d: %w", i, err)
			}
		}
	}
	return out, len(list), width, nil
}

// keys writes the selected keys of a row in one layer to the slice to, padded with -1.
func (row *Row) keys(to []int32, layer int) error {
	at := slices.IndexFunc(row.Layers, func(l Layer) bool { return l.Layer == layer })
	if at < 0 {
		return fmt.Errorf("layer %d was not recorded", layer)
	}
	l := &row.Layers[at]
	group := max(l.Group, 1)
	switch {
	case l.As != nil && *l.As != layer:
		return row.keys(to, *l.As)
	case l.All:
		for k := range l.Keys / group {
			to[k] = int32(k)
		}
		return nil
	}
	return Positions(to, l.Selected, group, l.Keys)
}

// whole returns an error unless the rows at positions 0 to rows-1 were recorded, in this order.
func (r *Rows) whole(rows int) error {
	if r == nil || len(r.Rows) < rows || len(r.NotComputed) > 0 {
		return fmt.Errorf("record: not all of %d rows were recorded", rows)
	}
	for i := range rows {
		if r.Rows[i].Position != i {
			return fmt.Errorf("record: row %d has position %d, want %d", i, r.Rows[i].Position, i)
		}
	}
	return nil
}
