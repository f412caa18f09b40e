package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sparrow/internal/jsonscan"
)

// Field states how one member of an object of type T is read.
type Field[T any] struct {
	Read func(c *Reader, v *T)
	// Refused fields are always errors. They exist for their error message, and are not suggested in place of a
	// misspelled name.
	Refused bool
}

// Fields has the members of an object by name. Other names are unknown: the reader refuses them if it is strict, and
// ignores them otherwise.
type Fields[T any] map[string]Field[T]

// ReadObject reads an object member by member. Members that are null count as absent.
func ReadObject[T any](c *Reader, v *T, known Fields[T]) {
	if c.Shape() != jsonscan.Object {
		c.WrongShape("an object")
		return
	}
	for name := range c.Members {
		f, ok := known[name]
		switch {
		case !ok && c.strict:
			c.Problem(CodeUnknownParameter, "%s", unknownMessage(c, name, known))
			c.Skip()
		case c.Shape() == jsonscan.Null:
			c.Word()
		case !ok:
			c.Ignore()
		default:
			f.Read(c, v)
		}
	}
}

// ReadStrict is like ReadObject for an object that no other server has: an unknown name in it, or in an object inside
// it, is a mistake and refused, regardless of the rest of the body.
func ReadStrict[T any](c *Reader, v *T, known Fields[T]) {
	before := c.strict
	c.strict = true
	ReadObject(c, v, known)
	c.strict = before
}

// names returns the fields that an error may suggest instead of a misspelled one.
func (f Fields[T]) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !f[name].Refused {
			names = append(names, name)
		}
	}
	return names
}

// unknownMessage looks for the nearest name only while problems are listed, because a hostile body may contain a
// million names.
func unknownMessage[T any](c *Reader, name string, known Fields[T]) string {
	if !c.Full() {
		if best := Nearest(name, known.names()); best != "" {
			return "unknown field; did you mean " + best + "?"
		}
	}
	return "unknown field; it would have no effect, so omit it"
}

// Lift makes the fields of a part usable as fields of the whole.
func Lift[T, P any](part Fields[P], of func(*T) *P) Fields[T] {
	whole := make(Fields[T], len(part))
	for name, f := range part {
		whole[name] = Field[T]{func(c *Reader, v *T) { f.Read(c, of(v)) }, f.Refused}
	}
	return whole
}

// Join merges field tables. A later table may replace a field of an earlier one.
func Join[T any](tables ...Fields[T]) Fields[T] {
	all := Fields[T]{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	return all
}

// TextField reads a string.
func TextField[T any](of func(*T) *string) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { Set(of(v), c.Str) }}
}

// BoolField reads a boolean.
func BoolField[T any](of func(*T) *bool) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { Set(of(v), c.Boolean) }}
}

// OptionalBool reads a boolean that is nil if it is absent.
func OptionalBool[T any](of func(*T) **bool) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { SetPointer(of(v), c.Boolean) }}
}

// OptionalFloat reads a number that is nil if it is absent.
func OptionalFloat[T any](of func(*T) **float64) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { SetPointer(of(v), c.Float) }}
}

// OptionalInt reads an integer that is nil if it is absent.
func OptionalInt[T any](of func(*T) **int) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) {
		SetPointer(of(v), func() (int, bool) {
			n, ok := c.Integer()
			return int(n), ok
		})
	}}
}

// Set stores the value that was read, unless it had the wrong type.
func Set[V any](dst *V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = v
	}
}

// SetPointer stores a pointer to the value that was read, which is nil if it is absent.
func SetPointer[V any](dst **V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = &v
	}
}

// Refuse returns a field that other servers support and this one does not; instead is the suggested alternative.
func Refuse[T any](instead string) Field[T] {
	return Field[T]{Refused: true, Read: func(c *Reader, _ *T) {
		c.Problem(CodeUnsupportedParam, "not supported; %s", instead)
		c.Skip()
	}}
}

// ReadList reads an array of at most `most` elements. Further elements are checked, counted and dropped.
func ReadList[V any](c *Reader, most int, what string, read func() (V, bool)) []V {
	if c.Shape() != jsonscan.Array {
		c.WrongShape("an array of " + what)
		return nil
	}
	list := []V{}
	count := 0
	for range c.Elements {
		if count++; count > most {
			c.Skip()
			continue
		}
		if v, ok := read(); ok {
			list = append(list, v)
		}
	}
	WantAtMost(&c.Problems, c.Param(), count, most, what)
	return list
}

// ReadStruct returns a function for ReadList that reads an element with ReadObject. It keeps an object with problems,
// because the request fails anyway, and later checks rely on all elements.
func ReadStruct[T any](c *Reader, known Fields[T]) func() (T, bool) {
	return func() (T, bool) {
		var v T
		ReadObject(c, &v, known)
		return v, true
	}
}

// IgnoreAny accepts any value and ignores it.
func IgnoreAny[T any]() Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) { c.Ignore() }}
}

// IgnoreAs accepts a value of one shape and ignores it.
func IgnoreAs[T any](want jsonscan.Kind) Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) {
		if c.Shape() != want {
			c.WrongShape(want.String())
			return
		}
		c.Ignore()
	}}
}

// FixedAs accepts only one value.
func FixedAs[T any](text, why string) Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) {
		var got bytes.Buffer
		if err := json.Compact(&got, c.Raw()); err == nil && got.String() != text {
			c.Problem(CodeUnsupportedValue, "%s is not supported, only %s: %s", jsonscan.Clip(got.String()), text, why)
		}
	}}
}
