package record

import (
	"encoding/base64"
	"strconv"
)

// AppendJSON appends the rows as JSON. It does not use reflection, because a stream does this for every token.
func (r *Rows) AppendJSON(to []byte) []byte {
	to = append(to, `{"rows":[`...)
	for i := range r.Rows {
		to = r.Rows[i].appendJSON(comma(to, i))
	}
	to = append(to, ']')
	for i, x := range r.NotComputed {
		if i == 0 {
			to = append(to, `,"not_computed":[`...)
		}
		to = strconv.AppendInt(append(comma(to, i), '['), int64(x[0]), 10)
		to = append(strconv.AppendInt(append(to, ','), int64(x[1]), 10), ']')
	}
	if len(r.NotComputed) > 0 {
		to = append(to, ']')
	}
	return append(to, '}')
}

// MarshalJSON returns the rows as JSON.
func (r *Rows) MarshalJSON() ([]byte, error) { return r.AppendJSON(nil), nil }

func (r *Row) appendJSON(to []byte) []byte {
	to = number(append(to, '{'), `"position":`, r.Position)
	for i := range r.Layers {
		if i == 0 {
			to = append(to, `,"layers":[`...)
		}
		to = r.Layers[i].appendJSON(comma(to, i))
	}
	if len(r.Layers) > 0 {
		to = append(to, ']')
	}
	for i := range r.Experts {
		if i == 0 {
			to = append(to, `,"experts":[`...)
		}
		x := &r.Experts[i]
		to = number(append(comma(to, i), '{'), `"layer":`, x.Layer)
		to = bytes(bytes(to, `,"ids":"`, x.IDs), `,"weights":"`, x.Weights)
		to = append(to, '}')
	}
	if len(r.Experts) > 0 {
		to = append(to, ']')
	}
	return append(to, '}')
}

func (l *Layer) appendJSON(to []byte) []byte {
	to = number(append(to, '{'), `"layer":`, l.Layer)
	to = number(to, `,"keys":`, l.Keys)
	if l.Group > 0 {
		to = number(to, `,"group":`, l.Group)
	}
	if l.Window > 0 {
		to = number(to, `,"window":`, l.Window)
	}
	if l.All {
		to = append(to, `,"all":true`...)
	}
	if l.As != nil {
		to = number(to, `,"as":`, *l.As)
	}
	if len(l.Selected) > 0 {
		to = bytes(to, `,"selected":"`, l.Selected)
	}
	if len(l.Scores) > 0 {
		to = bytes(to, `,"scores":"`, l.Scores)
	}
	if len(l.Candidates) > 0 {
		to = bytes(to, `,"candidates":"`, l.Candidates)
	}
	if l.Block > 0 {
		to = number(to, `,"block":`, l.Block)
	}
	return append(to, '}')
}

func number(to []byte, name string, v int) []byte {
	return strconv.AppendInt(append(to, name...), int64(v), 10)
}

func bytes(to []byte, name string, v []byte) []byte {
	return append(base64.StdEncoding.AppendEncode(append(to, name...), v), '"')
}

func comma(to []byte, i int) []byte {
	if i > 0 {
		return append(to, ',')
	}
	return to
}
