package grammar

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"unicode/utf8"
)

// value is a JSON value. Members keep their order, because properties are written in the order of the schema.
type value struct {
	kind    valueKind
	text    string // text of a string, or the spelling of a number
	truth   bool
	list    []value
	members []member
	index   map[string]int // [name] index in members; nil if there are few members
}

type member struct {
	name  string
	value value
}

type valueKind uint8

const (
	nullValue valueKind = iota
	boolValue
	numberValue
	stringValue
	arrayValue
	objectValue
)

func (k valueKind) String() string {
	return [...]string{"null", "a boolean", "a number", "a string", "an array", "an object"}[k]
}

// parseValue parses one JSON document. Duplicate names, invalid UTF-8 and text after the value are errors.
func parseValue(data []byte) (value, error) {
	if len(data) > MaxSchemaBytes {
		return value{},
			&SchemaError{Problem: fmt.Sprintf("the schema has %d bytes; at most %d are supported", len(data),
				MaxSchemaBytes),
				Kind: ErrTooLarge}
	}
	if !utf8.Valid(data) {
		return value{}, &SchemaError{Problem: "the schema is not valid UTF-8", Kind: ErrSchema}
	}
	d := json.NewDecoder(bytes.NewReader(data))
	d.UseNumber()
	v, err := readValue(d, 0)
	if err == nil {
		if _, extra := d.Token(); !errors.Is(extra, io.EOF) {
			err = &SchemaError{Problem: "there is more text after the JSON value", Kind: ErrSchema}
		}
	}
	var se *SchemaError
	if err != nil && !errors.As(err, &se) {
		err = &SchemaError{Problem: "the schema is not JSON: " + err.Error(), Kind: ErrSchema}
	}
	return v, err
}

func readValue(d *json.Decoder, depth int) (value, error) {
	if depth > MaxSchemaDepth {
		return value{}, &SchemaError{Problem: fmt.Sprintf("the schema is nested deeper than %d levels", MaxSchemaDepth),
			Kind: ErrTooLarge}
	}
	token, err := d.Token()
	if err != nil {
		return value{}, err
	}
	switch t := token.(type) {
	case bool:
		return value{kind: boolValue, truth: t}, nil
	case json.Number:
		return value{kind: numberValue, text: t.String()}, nil
	case string:
		return value{kind: stringValue, text: t}, nil
	case json.Delim:
		if t == '[' {
			return readList(d, depth)
		}
		return readMembers(d, depth)
	}
	return value{kind: nullValue}, nil
}

func readList(d *json.Decoder, depth int) (value, error) {
	v := value{kind: arrayValue}
	for d.More() {
		e, err := readValue(d, depth+1)
		if err != nil {
			return v, err
		}
		v.list = append(v.list, e)
	}
	_, err := d.Token()
	return v, err
}

func readMembers(d *json.Decoder, depth int) (value, error) {
	v := value{kind: objectValue}
	seen := map[string]int{}
	for d.More() {
		token, err := d.Token()
		if err != nil {
			return v, err
		}
		name, ok := token.(string)
		if !ok {
			return v, fmt.Errorf("found %v, want a member name", token)
		}
		if _, ok := seen[name]; ok {
			return v, &SchemaError{Problem: fmt.Sprintf("the name %q occurs twice in one object", name),
				Kind: ErrSchema}
		}
		seen[name] = len(v.members)
		e, err := readValue(d, depth+1)
		if err != nil {
			return v, err
		}
		v.members = append(v.members, member{name, e})
	}
	if len(seen) > 16 {
		v.index = seen
	}
	_, err := d.Token()
	return v, err
}

// get returns the member with the given name.
func (v *value) get(name string) (*value, bool) {
	if v.index != nil {
		i, ok := v.index[name]
		if !ok {
			return nil, false
		}
		return &v.members[i].value, true
	}
	for i := range v.members {
		if v.members[i].name == name {
			return &v.members[i].value, true
		}
	}
	return nil, false
}

// append writes the value without whitespace, strings in canonical form and numbers unchanged.
func (v *value) append(dst []byte) []byte {
	switch v.kind {
	case nullValue:
		return append(dst, "null"...)
	case boolValue:
		return fmt.Appendf(dst, "%t", v.truth)
	case numberValue:
		return append(dst, v.text...)
	case stringValue:
		return appendString(dst, v.text)
	case arrayValue:
		dst = append(dst, '[')
		for i := range v.list {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = v.list[i].append(dst)
		}
		return append(dst, ']')
	}
	dst = append(dst, '{')
	for i := range v.members {
		if i > 0 {
			dst = append(dst, ',')
		}
		dst = append(appendString(dst, v.members[i].name), ':')
		dst = v.members[i].value.append(dst)
	}
	return append(dst, '}')
}

// identity returns a text that is the same for two values if and only if they are equal in the sense of JSON Schema:
// numbers by value, objects regardless of order.
func (v *value) identity(dst []byte) []byte {
	switch v.kind {
	case numberValue:
		r, err := parseDecimal(v.text)
		if err != nil {
			return append(dst, v.text...)
		}
		return append(dst, r.RatString()...)
	case arrayValue:
		dst = append(dst, '[')
		for i := range v.list {
			dst = append(v.list[i].identity(dst), ',')
		}
		return append(dst, ']')
	case objectValue:
		sorted := slices.Clone(v.members)
		slices.SortFunc(sorted, func(a, b member) int { return strings.Compare(a.name, b.name) })
		dst = append(dst, '{')
		for i := range sorted {
			dst = append(appendString(dst, sorted[i].name), ':')
			dst = append(sorted[i].value.identity(dst), ',')
		}
		return append(dst, '}')
	}
	return v.append(dst)
}

// intersectValues returns the values of a that are also in b.
func intersectValues(a, b []value) []value {
	in := map[string]bool{}
	for i := range b {
		in[string(b[i].identity(nil))] = true
	}
	out := []value{}
	for i := range a {
		if in[string(a[i].identity(nil))] {
			out = append(out, a[i])
		}
	}
	return out
}
