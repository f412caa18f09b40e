package record

import (
	"slices"
	"strings"
	"testing"
)

// Invariants of this file: choices that fit a model are read completely and in the order of its layers; any choice that
// does not fit is refused with the reason.

// mixed is a model of five layers. Layer 0 selects tokens, layer 1 uses that selection, layer 2 selects groups of two
// tokens, layer 3 attends to all keys, and layer 4 selects tokens. Layers 2 and 3 choose two of nine experts.
var mixed = Shape{TopK: 4, Dense: 6, Experts: 9, Chosen: 2, Layers: []LayerShape{{As: 0}, {As: 0},
	{As: 2, Group: 2, Experts: true}, {As: -1, Experts: true}, {As: 4}}}

// choices returns a row that fits mixed.
func choices(position int) Row {
	first := 0
	ids := func(a, b int32) []byte { return AppendIDs(nil, []int32{a, b}) }
	weights := func(a, b float32) []byte { return AppendFloats(nil, []float32{a, b}) }
	return Row{Position: position, Layers: []Layer{
		{Layer: 0, Keys: position + 1, Selected: AppendPositions(nil, []int32{1, 3, 5}, 1)},
		{Layer: 1, Keys: position + 1, As: &first},
		{Layer: 2, Keys: position + 1, Group: 2, Selected: AppendPositions(nil, []int32{0, 2}, 2)},
		{Layer: 4, Keys: position + 1, Selected: AppendPositions(nil, []int32{0, 2, 4, 6}, 1)},
	}, Experts: []Experts{
		{Layer: 2, IDs: ids(7, 1), Weights: weights(0.5, 0.25)}, {Layer: 3, IDs: ids(8, 0), Weights: weights(2, 4)}}}
}

func TestTheShapeOfChoices(t *testing.T) {
	if a, b, c := mixed.Selecting(), mixed.Mixing(), mixed.Words(); a != 3 || b != 2 || c != 2*3*4+2*2*2 {
		t.Errorf("%d layers select, %d choose experts, %d words for a row", a, b, c)
	}
	more := mixed
	more.Blocks = 5
	if got := more.Words(); got != mixed.Words()+5 {
		t.Errorf("%d words for a row with five blocks, %d without", got, mixed.Words())
	}
	for layer, want := range []int{7, 7, 3, 7, 7} {
		if got := mixed.Visible(layer, 7); got != want {
			t.Errorf("a row of 7 tokens chooses from %d keys in layer %d, want %d", got, layer, want)
		}
	}
}

// Selections and experts of each row are read in the order of the layers, also if they are given in another order.
func TestReplayedChoicesAreThoseOfTheirRow(t *testing.T) {
	rows := []Row{choices(7), choices(8)}
	rows[1].Layers[0].Selected = AppendPositions(nil, []int32{2, 8}, 1)
	rows[1].Experts[0].IDs = AppendIDs(nil, []int32{3, 5})
	slices.Reverse(rows[1].Layers)
	slices.Reverse(rows[1].Experts)
	r, err := NewReplay(rows, mixed)
	if err != nil {
		t.Fatal(err)
	}
	if r.First != 7 || r.Len() != 2 || !r.Selections || !r.Experts {
		t.Errorf("a replay of %d rows from %d, selections %t, experts %t", r.Len(), r.First, r.Selections, r.Experts)
	}
	for position, want := range map[int][]int32{7: {1, 3, 5, -1, 0, 2, -1, -1, 0, 2, 4, 6},
		8: {2, 8, -1, -1, 0, 2, -1, -1, 0, 2, 4, 6}} {
		got := make([]int32, 12)
		if err := r.FillSelections(got, position, false); err != nil || !slices.Equal(got, want) {
			t.Errorf("position %d: keys %v, want %v, error %v", position, got, want, err)
		}
	}
	bits := func(v ...float32) (out []int32) {
		words := AppendFloats(nil, v)
		for i := range v {
			out = append(out, int32(words[4*i])|int32(words[4*i+1])<<8|int32(words[4*i+2])<<16|int32(words[4*i+3])<<24)
		}
		return out
	}
	for position, want := range map[int][]int32{7: {7, 1, 8, 0}, 8: {3, 5, 8, 0}} {
		ids, weights := make([]int32, 4), make([]int32, 4)
		r.FillExperts(ids, weights, position)
		if !slices.Equal(ids, want) || !slices.Equal(weights, bits(0.5, 0.25, 2, 4)) {
			t.Errorf("position %d: experts %v, want %v, weights %v", position, ids, want, weights)
		}
	}
}

// Rows may have only selections or only experts.
func TestReplayOfOneKindOfChoice(t *testing.T) {
	selections, experts := choices(0), choices(0)
	selections.Experts, experts.Layers = nil, nil
	selections.Layers = []Layer{{Layer: 0, Keys: 1, All: true}, {Layer: 2, Keys: 1, All: true},
		{Layer: 4, Keys: 1, Selected: AppendPositions(nil, []int32{0}, 1)}}
	for _, row := range []Row{selections, experts} {
		r, err := NewReplay([]Row{row}, mixed)
		if err != nil || r.Selections != (row.Layers != nil) || r.Experts != (row.Experts != nil) {
			t.Errorf("replay %+v, error %v", r, err)
		}
	}
}

func TestRowsThatDoNotFitTheModelAreNotReplayed(t *testing.T) {
	keys := func(n int) []byte { return AppendPositions(nil, []int32{0, int32(n)}, 1) }
	for _, c := range []struct {
		name   string
		change func(rows []Row)
		want   string
	}{
		{"as it is", func([]Row) {}, ""},
		{"a negative position", func(r []Row) { r[0].Position = -1 }, "position -1, want 0 or more"},
		{"nothing to replay", func(r []Row) { r[0].Layers, r[0].Experts = nil, nil }, "neither layers nor experts"},
		{"a gap", func(r []Row) { r[1].Position = 9 }, "rows[1] (position 9): want position 8"},
		{"a row twice", func(r []Row) { r[1].Position = 7 }, "want position 8"},
		{"no layers in one row", func(r []Row) { r[1].Layers = nil }, "in all rows or in none"},
		{"no experts in one row", func(r []Row) { r[1].Experts = nil }, "in all rows or in none"},
		{"a negative layer", func(r []Row) { r[0].Layers[0].Layer = -1 }, "layer -1 does not exist"},
		{"a layer too many", func(r []Row) { r[0].Layers[0].Layer = 5 }, "layer 5 does not exist"},
		{"a layer twice", func(r []Row) { r[0].Layers[1].Layer = 0 }, "layer 0 is given twice"},
		{"a missing layer", func(r []Row) { r[0].Layers = r[0].Layers[:3] }, "the selection of layer 4 is missing"},
		{"fewer keys", func(r []Row) { r[0].Layers[1].Keys = 7 },
			"layer 1: keys is 7; a row at position 7 attends to 8"},
		{"another source", func(r []Row) { two := 2; r[0].Layers[1].As = &two }, "it uses that of layer 0"},
		{"an earlier source", func(r []Row) { zero := 0; r[0].Layers[3].As = &zero }, "it uses that of layer 4"},
		{"all and selected", func(r []Row) { r[0].Layers[0].All = true }, "both all and selected"},
		{"neither all nor selected", func(r []Row) { r[0].Layers[0].Selected = nil }, "neither all nor selected"},
		{"all of too many keys", func(r []Row) { r[0].Layers[3] = Layer{Layer: 4, Keys: 8, All: true} },
			"all is given for 8 keys; a row attends to at most 4"},
		{"all of four groups", func(r []Row) { r[0].Layers[2] = Layer{Layer: 2, Keys: 8, All: true} }, ""},
		{"a key after the row", func(r []Row) { r[0].Layers[0].Selected = keys(8) }, "only positions below 8 exist"},
		{"the key of the row", func(r []Row) { r[0].Layers[0].Selected = keys(7) }, ""},
		{"a token within a group", func(r []Row) { r[0].Layers[2].Selected = keys(3) }, "start of a group of 2"},
		{"a group that is not complete", func(r []Row) { r[1].Layers[2].Selected = keys(8) },
			"only positions below 8 exist"},
		{"too many keys", func(r []Row) {
			r[0].Layers[0].Selected = AppendPositions(nil, []int32{0, 1, 2, 3, 4}, 1)
		}, "more than 4 positions"},
		{"a negative layer of experts", func(r []Row) { r[0].Experts[0].Layer = -1 }, "layer -1 chooses no experts"},
		{"a layer of experts too many", func(r []Row) { r[0].Experts[0].Layer = 5 }, "layer 5 chooses no experts"},
		{"a layer without experts", func(r []Row) { r[0].Experts[0].Layer = 4 }, "layer 4 chooses no experts"},
		{"experts of a layer twice", func(r []Row) { r[0].Experts = append(r[0].Experts, r[0].Experts[1]) },
			"experts of layer 3 are given twice"},
		{"missing experts", func(r []Row) { r[0].Experts = r[0].Experts[:1] }, "the experts of layer 3 are missing"},
		{"too few experts", func(r []Row) { r[0].Experts[0].IDs = r[0].Experts[0].IDs[:2] }, "ids have 2 bytes"},
		{"too few weights", func(r []Row) { r[0].Experts[1].Weights = r[0].Experts[1].Weights[:4] }, "weights 4"},
		{"an expert too many", func(r []Row) { r[0].Experts[1].IDs = AppendIDs(nil, []int32{8, 9}) },
			"experts of layer 3: expert 9 does not exist"},
	} {
		rows := []Row{choices(7), choices(8)}
		c.change(rows)
		_, err := NewReplay(rows, mixed)
		if (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := NewReplay(nil, mixed); err == nil {
		t.Error("a replay of no rows was made")
	}
}

// A row that attended to all keys is replayed if it can attend to as many here. In a batch with dense attention, a row
// is replayed only if it attended to all keys.
func TestReplayOfAllKeys(t *testing.T) {
	s := Shape{TopK: 4, Dense: 6, Layers: []LayerShape{{As: 0}}}
	for _, c := range []struct {
		position int
		selected []int32 // nil means all
		dense    bool
		want     []int32
		err      string
	}{
		{3, nil, false, []int32{0, 1, 2, 3}, ""},
		{2, nil, false, []int32{0, 1, 2, -1}, ""},
		{5, nil, true, []int32{0, 1, 2, 3}, ""},
		{4, nil, false, nil, "attends to all of its 5 keys in layer 0 of the replayed rows, and to at most 4 here"},
		{3, []int32{0, 1, 2, 3}, true, []int32{0, 1, 2, 3}, ""},
		{3, []int32{0, 1, 3}, true, nil, "attends to all of its 4 keys here, but to 3 of them in layer 0"},
		{3, []int32{0, 1, 3}, false, []int32{0, 1, 3, -1}, ""},
	} {
		l := Layer{Keys: c.position + 1, All: c.selected == nil, Selected: AppendPositions(nil, c.selected, 1)}
		r, err := NewReplay([]Row{{Position: c.position, Layers: []Layer{l}}}, s)
		if err != nil {
			t.Fatal(err)
		}
		got := make([]int32, 4)
		err = r.FillSelections(got, c.position, c.dense)
		if (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) ||
			err == nil && !slices.Equal(got, c.want) {
			t.Errorf("position %d, selected %v, dense %t: keys %v, error %v", c.position, c.selected, c.dense, got, err)
		}
	}
	if _, err := NewReplay([]Row{{Position: 6, Layers: []Layer{{Keys: 7, All: true}}}}, s); err == nil {
		t.Error("all of 7 keys are replayed although a row attends to all of at most 6")
	}
}

// Arrays have an entry for every layer of each row, whether the layer was recorded itself or not.
func TestArraysOfChoices(t *testing.T) {
	rows := &Rows{Rows: []Row{choices(0), choices(1)}}
	for i := range rows.Rows {
		rows.Rows[i].Layers[0] = Layer{Layer: 0, Keys: i + 1, All: true}
		rows.Rows[i].Layers[2] = Layer{Layer: 2, Keys: i + 1, Group: 2, All: true}
		rows.Rows[i].Layers[3].Selected = AppendPositions(nil, []int32{int32(i)}, 1)
	}
	rows.Rows[1].Experts[1].IDs = AppendIDs(nil, []int32{4, 6})
	got, err := rows.ExpertArray(&mixed, 2)
	want := []int32{0, 0, 0, 0, 7, 1, 8, 0, 0, 0, 0, 0, 0, 0, 7, 1, 4, 6, 0, 0}
	if err != nil || !slices.Equal(got, want) {
		t.Errorf("experts %v, want %v, error %v", got, want, err)
	}
	got, layers, width, err := rows.SelectionArray(&mixed, 2)
	want = []int32{0, -1, -1, -1, 0, -1, -1, -1, -1, -1, -1, -1, 0, -1, -1, -1,
		0, 1, -1, -1, 0, 1, -1, -1, 0, -1, -1, -1, 1, -1, -1, -1}
	if err != nil || layers != 4 || width != 4 || !slices.Equal(got, want) {
		t.Errorf("%d layers of %d keys: %v, want %v, error %v", layers, width, got, want, err)
	}
	narrow := mixed
	narrow.TopK = 1
	if _, _, width, err := rows.SelectionArray(&narrow, 2); err != nil || width != 2 {
		t.Errorf("the row that attends to two keys has %d places, error %v", width, err)
	}
	if got, err := rows.ExpertArray(&mixed, 1); err != nil || len(got) != 10 {
		t.Errorf("experts of one row: %v, error %v", got, err)
	}
}

func TestArraysOfIncompleteRowsAreRefused(t *testing.T) {
	for _, c := range []struct {
		name    string
		rows    *Rows
		experts bool // the experts of the rows are complete
	}{
		{"no rows", nil, false},
		{"too few rows", &Rows{Rows: []Row{choices(0)}}, false},
		{"a row that was not computed",
			&Rows{Rows: []Row{choices(0), choices(1)}, NotComputed: []Range{{2, 3}}}, false},
		{"a later row", &Rows{Rows: []Row{choices(0), choices(2)}}, false},
		{"a layer that was not recorded", func() *Rows {
			r := &Rows{Rows: []Row{choices(0), choices(1)}}
			for i := range r.Rows {
				r.Rows[i].Layers = r.Rows[i].Layers[1:]
			}
			return r
		}(), true},
	} {
		if _, _, _, err := c.rows.SelectionArray(&mixed, 2); err == nil {
			t.Errorf("%s: the selections are complete", c.name)
		}
		if _, err := c.rows.ExpertArray(&mixed, 2); (err == nil) != c.experts {
			t.Errorf("%s: the experts have error %v", c.name, err)
		}
	}
	for name, experts := range map[string]Experts{
		"a layer too many": {Layer: 5, IDs: []byte{1, 0, 2, 0}},
		"a negative layer": {Layer: -1, IDs: []byte{1, 0, 2, 0}},
		"too few experts":  {Layer: 3, IDs: []byte{1, 0}}, "too many experts": {Layer: 2, IDs: make([]byte, 6)}} {
		rows := &Rows{Rows: []Row{{Experts: []Experts{experts}}}}
		if _, err := rows.ExpertArray(&mixed, 1); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
}
