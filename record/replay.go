package record

import (
	"encoding/binary"
	"fmt"
	"math"
)

// Replay holds recorded rows of one sequence. Passes use their choices; rows at other positions compute their own.
type Replay struct {
	First      int // position of the first row; the others have the next positions
	Selections bool
	Experts    bool
	shape      Shape
	rows       []given
}

// given holds the choices of one row, in the order of the layers.
type given struct {
	selected     [][]byte // [selecting layers] list of positions; nil if the row attended to every key
	ids, weights [][]byte
}

// Len returns the number of rows.
func (r *Replay) Len() int { return len(r.rows) }

// NewReplay returns a replay of rows, after checking them against the shape of the model. The error names the invalid
// row.
func NewReplay(rows []Row, s Shape) (*Replay, error) {
	if len(rows) == 0 {
		return nil, fmt.Errorf("there are no rows to replay; send at least one")
	}
	first := &rows[0]
	r := &Replay{First: first.Position, Selections: len(first.Layers) > 0, Experts: len(first.Experts) > 0, shape: s}
	if first.Position < 0 {
		return nil, fmt.Errorf("rows[0] has position %d, want 0 or more", first.Position)
	}
	if !r.Selections && !r.Experts {
		return nil, fmt.Errorf("rows[0] has neither layers nor experts; send at least one of them")
	}
	scratch := make([]int32, s.TopK)
	for i := range rows {
		row := &rows[i]
		g, err := given{}, error(nil)
		switch {
		case row.Position != r.First+i:
			err = fmt.Errorf("want position %d: rows must follow each other without gaps", r.First+i)
		case (len(row.Layers) > 0) != r.Selections || (len(row.Experts) > 0) != r.Experts:
			err = fmt.Errorf("layers and experts must be given in all rows or in none")
		default:
			g, err = s.given(row, scratch)
		}
		if err != nil {
			return nil, fmt.Errorf("rows[%d] (position %d): %w", i, row.Position, err)
		}
		r.rows = append(r.rows, g)
	}
	return r, nil
}

// given checks one row and returns its choices in the order of the layers.
func (s *Shape) given(row *Row, scratch []int32) (g given, err error) {
	if len(row.Layers) > 0 {
		if g.selected, err = s.selections(row, scratch); err != nil {
			return g, err
		}
	}
	if len(row.Experts) == 0 {
		return g, nil
	}
	byLayer := make([]*Experts, len(s.Layers))
	for i := range row.Experts {
		x := &row.Experts[i]
		if x.Layer < 0 || x.Layer >= len(s.Layers) || !s.Layers[x.Layer].Experts {
			return g, fmt.Errorf("layer %d chooses no experts in this model of %d layers", x.Layer, len(s.Layers))
		}
		if byLayer[x.Layer] != nil {
			return g, fmt.Errorf("the experts of layer %d are given twice; send each layer once", x.Layer)
		}
		byLayer[x.Layer] = x
	}
	for l, x := range byLayer {
		if !s.Layers[l].Experts {
			continue
		}
		if x == nil {
			return g, fmt.Errorf("the experts of layer %d are missing; record them all with \"experts\": true", l)
		}
		if err := s.checkExperts(x); err != nil {
			return g, fmt.Errorf("experts of layer %d: %w", l, err)
		}
		g.ids, g.weights = append(g.ids, x.IDs), append(g.weights, x.Weights)
	}
	return g, nil
}

// selections checks the selections of a row and returns one list per selecting layer.
func (s *Shape) selections(row *Row, scratch []int32) (list [][]byte, err error) {
	byLayer := make([]*Layer, len(s.Layers))
	for i := range row.Layers {
		l := &row.Layers[i]
		if l.Layer < 0 || l.Layer >= len(s.Layers) {
			return nil, fmt.Errorf("layer %d does not exist; the model has %d layers", l.Layer, len(s.Layers))
		}
		if byLayer[l.Layer] != nil {
			return nil, fmt.Errorf("layer %d is given twice; send each layer once", l.Layer)
		}
		byLayer[l.Layer] = l
	}
	for i, l := range byLayer {
		if l != nil && l.Keys != row.Position+1 {
			return nil, fmt.Errorf("layer %d: keys is %d; a row at position %d attends to %d", i, l.Keys, row.Position,
				row.Position+1)
		}
		if l != nil && l.As != nil && *l.As != s.Layers[i].As {
			return nil, fmt.Errorf("layer %d is recorded with the selection of layer %d; in this model it uses that "+
				"of layer %d", i, *l.As, s.Layers[i].As)
		}
		if !s.Selects(i) {
			continue
		}
		if l == nil {
			return nil, fmt.Errorf("the selection of layer %d is missing; record them all with \"layers\": \"all\"", i)
		}
		if err := s.checkSelection(i, l, scratch); err != nil {
			return nil, fmt.Errorf("layer %d: %w", i, err)
		}
		if l.All {
			list = append(list, nil)
		} else {
			list = append(list, l.Selected)
		}
	}
	return list, nil
}

func (s *Shape) checkSelection(i int, l *Layer, scratch []int32) error {
	if l.All {
		if len(l.Selected) > 0 {
			return fmt.Errorf("both all and selected are given; send one of them")
		}
		if n := s.Visible(i, l.Keys); n > s.TopK && l.Keys > s.Dense {
			return fmt.Errorf("all is given for %d keys; a row attends to at most %d", n, s.TopK)
		}
		return nil
	}
	group := max(s.Layers[i].Group, 1)
	if len(l.Selected) == 0 {
		return fmt.Errorf("neither all nor selected is given; send one of them")
	}
	return Positions(scratch, l.Selected, group, s.Visible(i, l.Keys)*group)
}

// maxWeight is the maximum weight of an expert: far above those of routers, and small enough that sums are finite.
const maxWeight = 1 << 10

func (s *Shape) checkExperts(x *Experts) error {
	if len(x.IDs) != 2*s.Chosen || len(x.Weights) != 4*s.Chosen {
		return fmt.Errorf("ids have %d bytes and weights %d; a row has %d experts, which take %d and %d bytes",
			len(x.IDs), len(x.Weights), s.Chosen, 2*s.Chosen, 4*s.Chosen)
	}
	for j := range s.Chosen {
		if id := binary.LittleEndian.Uint16(x.IDs[2*j:]); int(id) >= s.Experts {
			return fmt.Errorf("expert %d does not exist; a layer has %d experts", id, s.Experts)
		}
		w := float64(math.Float32frombits(binary.LittleEndian.Uint32(x.Weights[4*j:])))
		if !(w >= 0 && w <= maxWeight) {
			return fmt.Errorf("weight %d is %v, want 0 to %v", j, w, maxWeight)
		}
	}
	return nil
}

// FillSelections writes the selections of the row at a position to [selecting layers, TopK] key indices, with -1 after
// the last. dense states that the row attends to every key. Otherwise, a row that attended to every key must have at
// most TopK keys. It is an error if a dense row was recorded with fewer keys.
func (r *Replay) FillSelections(to []int32, position int, dense bool) error {
	j, k := 0, r.shape.TopK
	for i := range r.shape.Layers {
		if !r.shape.Selects(i) {
			continue
		}
		out, list := to[j*k:(j+1)*k], r.rows[position-r.First].selected[j]
		j++
		visible, group := r.shape.Visible(i, position+1), max(r.shape.Layers[i].Group, 1)
		if list != nil && !dense {
			// NewReplay has checked the list, so an error is a bug.
			if err := Positions(out, list, group, visible*group); err != nil {
				return err
			}
			continue
		}
		if list != nil && CountPositions(list) < visible {
			return fmt.Errorf("replay: position %d attends to all of its %d keys here, but to %d of them in layer %d "+
				"of the replayed rows; replay with the dense threshold that they were recorded with", position,
				visible, CountPositions(list), i)
		}
		if list == nil && visible > k && !dense {
			return fmt.Errorf("replay: position %d attends to all of its %d keys in layer %d of the replayed rows, "+
				"and to at most %d here; replay with the dense threshold that they were recorded with", position,
				visible, i, k)
		}
		for p := range out {
			if out[p] = -1; p < visible {
				out[p] = int32(p)
			}
		}
	}
	return nil
}

// FillExperts writes the experts of the row at a position: ids and weights (the bits of float32), each [layers with
// experts, Chosen].
func (r *Replay) FillExperts(ids, weights []int32, position int) {
	g, n := &r.rows[position-r.First], r.shape.Chosen
	for j := range g.ids {
		for i := range n {
			ids[j*n+i] = int32(binary.LittleEndian.Uint16(g.ids[j][2*i:]))
			weights[j*n+i] = int32(binary.LittleEndian.Uint32(g.weights[j][4*i:]))
		}
	}
}
