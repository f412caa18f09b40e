package openai

import (
	"encoding/base64"
	"math"
	"strconv"

	"sparrow/internal/jsonscan"
	"sparrow/internal/wire"
	"sparrow/record"
)

// Selections requests the positions of the keys that rows attended to (docs/format/selections.md).
type Selections struct {
	Layers []int          // nil means all layers
	Tokens RecordedTokens // tokens whose rows are recorded
	Scores bool
}

// RecordedTokens selects the tokens whose rows are recorded: only those of the answer, also those of the prompt, or a
// range of positions.
type RecordedTokens struct {
	All   bool
	Range *record.Range
}

// MarshalJSON writes the JSON object that a request contains.
func (s *Selections) MarshalJSON() ([]byte, error) {
	out := []byte(`{"layers":`)
	if s.Layers == nil {
		out = append(out, `"all"`...)
	} else {
		out = append(out, '[')
		for i, l := range s.Layers {
			out = strconv.AppendInt(comma(out, i), int64(l), 10)
		}
		out = append(out, ']')
	}
	out = append(out, `,"tokens":`...)
	switch t := &s.Tokens; {
	case t.Range != nil:
		out = strconv.AppendInt(append(out, '['), int64(t.Range[0]), 10)
		out = append(strconv.AppendInt(append(out, ','), int64(t.Range[1]), 10), ']')
	case t.All:
		out = append(out, `"all"`...)
	default:
		out = append(out, `"output"`...)
	}
	return append(strconv.AppendBool(append(out, `,"scores":`...), s.Scores), '}'), nil
}

// maxLayers is the maximum number of layers that a request may list.
const maxLayers = 1024

var selectionFields = wire.Fields[Selections]{
	"layers": {Read: readLayers},
	"tokens": {Read: readRecordedTokens},
	"scores": wire.BoolField(func(s *Selections) *bool { return &s.Scores }),
}

func readSelections(c *wire.Reader, e *Extension) {
	e.Selections = &Selections{}
	wire.ReadObject(c, e.Selections, selectionFields)
}

// readLayers reads "all" or a list of layer indices, from 0.
func readLayers(c *wire.Reader, s *Selections) {
	switch c.Shape() {
	case jsonscan.String:
		if text, ok := c.Str(); ok && text != "all" {
			c.Problem(wire.CodeInvalidValue, `is %.40q; want "all" or an array of layers`, text)
		}
	case jsonscan.Array:
		s.Layers = wire.ReadList(c, maxLayers, "layers", position(c))
		if len(s.Layers) == 0 {
			c.Problem(wire.CodeInvalidValue, `lists no layer; send "all", or omit selections`)
		}
	default:
		c.WrongShape(`"all" or an array of layers`)
	}
}

// readRecordedTokens reads "output", "all" or two token positions.
func readRecordedTokens(c *wire.Reader, s *Selections) {
	const want = `"output", "all" or an array of two positions`
	switch c.Shape() {
	case jsonscan.String:
		switch text, ok := c.Str(); {
		case !ok || text == "output":
		case text == "all":
			s.Tokens.All = true
		default:
			c.Problem(wire.CodeInvalidValue, "is %.40q; want "+want, text)
		}
	case jsonscan.Array:
		s.Tokens.Range = readRange(c)
	default:
		c.WrongShape(want)
	}
}

// readRange reads an array of two token positions.
func readRange(c *wire.Reader) *record.Range {
	list := wire.ReadList(c, 2, "positions", position(c))
	if len(list) != 2 {
		c.Problem(wire.CodeInvalidValue, "want two positions, from and to")
		return nil
	}
	return &record.Range{list[0], list[1]}
}

// position returns a reader of a non-negative integer.
func position(c *wire.Reader) func() (int, bool) {
	return func() (int, bool) {
		n, ok := c.IntegerIn(0, math.MaxInt32)
		return int(n), ok
	}
}

// readReplay reads recorded rows, in the format of an answer.

func readReplay(c *wire.Reader, e *Extension) {
	e.Replay = &record.Rows{}
	wire.ReadObject(c, e.Replay, recordedFields)
}

var recordedFields = wire.Fields[record.Rows]{
	"rows": {Read: func(c *wire.Reader, r *record.Rows) {
		r.Rows = wire.ReadList(c, c.Size(), "rows", filled(c, rowFields, "layers or experts",
			func(r *record.Row) bool { return len(r.Layers) > 0 || len(r.Experts) > 0 }))
	}},
	// Fields of an answer other than its rows are ignored, because they are computed again.
	"not_computed": {Read: func(c *wire.Reader, r *record.Rows) {
		for _, x := range wire.ReadList(c, c.Size(), "ranges", func() (*record.Range, bool) {
			x := readRange(c)
			return x, x != nil
		}) {
			r.NotComputed = append(r.NotComputed, *x)
		}
	}},
}

var rowFields = wire.Fields[record.Row]{
	"position": numberField(func(r *record.Row) *int { return &r.Position }),
	"layers": {Read: func(c *wire.Reader, r *record.Row) {
		r.Layers = some(wire.ReadList(c, maxLayers, "layers", filled(c, layerFields, "keys",
			func(l *record.Layer) bool { return l.Keys > 0 })))
	}},
	"experts": {Read: func(c *wire.Reader, r *record.Row) {
		r.Experts = some(wire.ReadList(c, maxLayers, "layers", filled(c, expertFields, "ids",
			func(x *record.Experts) bool { return len(x.IDs) > 0 })))
	}},
}

var layerFields = wire.Fields[record.Layer]{
	"layer":    numberField(func(l *record.Layer) *int { return &l.Layer }),
	"keys":     numberField(func(l *record.Layer) *int { return &l.Keys }),
	"all":      wire.BoolField(func(l *record.Layer) *bool { return &l.All }),
	"as":       wire.OptionalInt(func(l *record.Layer) **int { return &l.As }),
	"group":    numberField(func(l *record.Layer) *int { return &l.Group }),
	"window":   numberField(func(l *record.Layer) *int { return &l.Window }),
	"selected": bytesField(func(l *record.Layer) *[]byte { return &l.Selected }),
	"scores":   bytesField(func(l *record.Layer) *[]byte { return &l.Scores }),
}

var expertFields = wire.Fields[record.Experts]{
	"layer":   numberField(func(x *record.Experts) *int { return &x.Layer }),
	"ids":     bytesField(func(x *record.Experts) *[]byte { return &x.IDs }),
	"weights": bytesField(func(x *record.Experts) *[]byte { return &x.Weights }),
}

// filled returns a reader of an object that must have the member that has checks for. An empty object would need many
// times the memory of its text.
func filled[T any](c *wire.Reader, known wire.Fields[T], what string, has func(*T) bool) func() (T, bool) {
	return func() (v T, ok bool) {
		ok = c.Clean(func() {
			wire.ReadObject(c, &v, known)
			if !has(&v) {
				c.Problem(wire.CodeMissing, "has no %s", what)
			}
		})
		return v, ok
	}
}

func numberField[T any](of func(*T) *int) wire.Field[T] {
	return wire.Field[T]{Read: func(c *wire.Reader, v *T) { wire.Set(of(v), position(c)) }}
}

// bytesField reads base64.
func bytesField[T any](of func(*T) *[]byte) wire.Field[T] {
	return wire.Field[T]{Read: func(c *wire.Reader, v *T) {
		text, ok := c.Str()
		if !ok {
			return
		}
		data, err := base64.StdEncoding.DecodeString(text)
		if err != nil {
			c.Problem(wire.CodeInvalidValue, "is not base64 with padding: %v", err)
			return
		}
		*of(v) = some(data)
	}}
}

// some returns the list, or nil for an empty list, so that JSON omits it.
func some[V any](list []V) []V {
	if len(list) == 0 {
		return nil
	}
	return list
}
