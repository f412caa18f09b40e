package wire

import (
	"bytes"
	"encoding/json"
	"maps"
	"slices"
	"sparrow/internal/jsonscan"
)

// Field states how a member of an object is read into a T.
type Field[T any] struct {
	Read func(c *Reader, v *T)
	// Refused fields are always errors with a specific message. They are not suggested for misspelled names.
	Refused bool
}

// Fields maps the names of an object's members to their fields. Other names are unknown: with Decoder.Strict they are
// errors, otherwise they are ignored.
type Fields[T any] map[string]Field[T]

// ReadObject reads an object into v. A member that is null counts as absent.
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

// ReadStrict is ReadObject in which unknown names are always errors, also in nested objects. It is for objects that
// only this server has.
func ReadStrict[T any](c *Reader, v *T, known Fields[T]) {
	before := c.strict
	c.strict = true
	ReadObject(c, v, known)
	c.strict = before
}

// names returns the names that an error may suggest for a misspelled one.
func (f Fields[T]) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !f[name].Refused {
			names = append(names, name)
		}
	}
	return names
}

// unknownMessage returns the message for an unknown name. It searches for a similar name only until the list of
// problems is full, because a hostile body may contain a million names.
func unknownMessage[T any](c *Reader, name string, known Fields[T]) string {
	if !c.Full() {
		if best := Nearest(name, known.names()); best != "" {
			return "unknown field; did you mean " + best + "?"
		}
	}
	return "unknown field; it would have no effect, so omit it"
}

// Lift converts the fields of a part P to fields of T, which contains the part.
func Lift[T, P any](part Fields[P], of func(*T) *P) Fields[T] {
	whole := make(Fields[T], len(part))
	for name, f := range part {
		whole[name] = Field[T]{func(c *Reader, v *T) { f.Read(c, of(v)) }, f.Refused}
	}
	return whole
}

// Join merges tables of fields. A later table has precedence.
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

// OptionalBool reads a boolean; if it is absent, the pointer stays nil.
func OptionalBool[T any](of func(*T) **bool) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { SetPointer(of(v), c.Boolean) }}
}

// OptionalFloat reads a number; if it is absent, the pointer stays nil.
func OptionalFloat[T any](of func(*T) **float64) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) { SetPointer(of(v), c.Float) }}
}

// OptionalInt reads an integer; if it is absent, the pointer stays nil.
func OptionalInt[T any](of func(*T) **int) Field[T] {
	return Field[T]{Read: func(c *Reader, v *T) {
		SetPointer(of(v), func() (int, bool) {
			n, ok := c.Integer()
			return int(n), ok
		})
	}}
}

// Set calls read and stores the value if ok is true.
func Set[V any](dst *V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = v
	}
}

// SetPointer calls read and stores a pointer to the value if ok is true.
func SetPointer[V any](dst **V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = &v
	}
}

// Refuse returns a field that this server does not support; instead tells the client what to send.
func Refuse[T any](instead string) Field[T] {
	return Field[T]{Refused: true, Read: func(c *Reader, _ *T) {
		c.Problem(CodeUnsupportedParam, "not supported; %s", instead)
		c.Skip()
	}}
}

// ReadList reads an array of at most most elements. The syntax of further elements is checked.
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

// ReadStruct returns a function for ReadList that reads an element with ReadObject. Objects with problems are kept,
// because later checks expect all elements.
func ReadStruct[T any](c *Reader, known Fields[T]) func() (T, bool) {
	return func() (T, bool) {
		var v T
		ReadObject(c, &v, known)
		return v, true
	}
}

// IgnoreAny returns a field that accepts every value and has no effect.
func IgnoreAny[T any]() Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) { c.Ignore() }}
}

// IgnoreAs returns a field that accepts every value of one JSON type and has no effect.
func IgnoreAs[T any](want jsonscan.Kind) Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) {
		if c.Shape() != want {
			c.WrongShape(want.String())
			return
		}
		c.Ignore()
	}}
}

// FixedAs returns a field that accepts only one value, given as JSON text.
func FixedAs[T any](text, why string) Field[T] {
	return Field[T]{Read: func(c *Reader, _ *T) {
		var got bytes.Buffer
		if err := json.Compact(&got, c.Raw()); err == nil && got.String() != text {
			c.Problem(CodeUnsupportedValue, "%s is not supported, only %s: %s", jsonscan.Clip(got.String()), text, why)
		}
	}}
}
