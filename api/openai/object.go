package openai

import (
	"maps"
	"slices"
)

// field says how one member of an object of type T is read.
type field[T any] struct {
	read func(c *cursor, v *T)
	// refused fields exist to explain themselves; they are not offered as the nearest name.
	refused bool
}

// fields are the members of an object by name. What is not in it is unknown.
type fields[T any] map[string]field[T]

// readObject reads an object member by member. Members that are null count as absent.
func readObject[T any](c *cursor, v *T, known fields[T]) {
	if c.shape() != shapeObject {
		c.wrongShape("an object")
		return
	}
	for name := range c.members {
		f, ok := known[name]
		switch {
		case !ok:
			c.problem(CodeUnknownParameter, "%s", unknownMessage(c, name, known))
			c.skip()
		case c.shape() == shapeNull:
			c.word()
		default:
			f.read(c, v)
		}
	}
}

// names are the fields that an error may suggest instead of a misspelled one.
func (f fields[T]) names() []string {
	var names []string
	for _, name := range slices.Sorted(maps.Keys(f)) {
		if !f[name].refused {
			names = append(names, name)
		}
	}
	return names
}

// unknownMessage looks for the nearest name only while problems are listed: a hostile body may hold a million names.
func unknownMessage[T any](c *cursor, name string, known fields[T]) string {
	if !c.full() {
		if best := nearest(name, known.names()); best != "" {
			return "unknown field; did you mean " + best + "?"
		}
	}
	return "unknown field; it would have no effect, so leave it out"
}

// lift makes the fields of a part usable as fields of the whole.
func lift[T, P any](part fields[P], of func(*T) *P) fields[T] {
	whole := make(fields[T], len(part))
	for name, f := range part {
		whole[name] = field[T]{func(c *cursor, v *T) { f.read(c, of(v)) }, f.refused}
	}
	return whole
}

// join merges field tables. A later table may replace a field of an earlier one.
func join[T any](tables ...fields[T]) fields[T] {
	all := fields[T]{}
	for _, table := range tables {
		maps.Copy(all, table)
	}
	return all
}

func textField[T any](of func(*T) *string) field[T] {
	return field[T]{read: func(c *cursor, v *T) { set(of(v), c.str) }}
}

func boolField[T any](of func(*T) *bool) field[T] {
	return field[T]{read: func(c *cursor, v *T) { set(of(v), c.boolean) }}
}

func optionalBool[T any](of func(*T) **bool) field[T] {
	return field[T]{read: func(c *cursor, v *T) { setPointer(of(v), c.boolean) }}
}

func optionalFloat[T any](of func(*T) **float64) field[T] {
	return field[T]{read: func(c *cursor, v *T) { setPointer(of(v), c.float) }}
}

func optionalInt[T any](of func(*T) **int) field[T] {
	return field[T]{read: func(c *cursor, v *T) {
		setPointer(of(v), func() (int, bool) {
			n, ok := c.integer()
			return int(n), ok
		})
	}}
}

// set stores what was read, unless it was not what the field takes.
func set[V any](dst *V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = v
	}
}

func setPointer[V any](dst **V, read func() (V, bool)) {
	if v, ok := read(); ok {
		*dst = &v
	}
}

// refuse is a field of other servers that cannot be honoured here; instead says what to do.
func refuse[T any](instead string) field[T] {
	return field[T]{refused: true, read: func(c *cursor, _ *T) {
		c.problem(CodeUnsupportedParam, "not supported; %s", instead)
		c.skip()
	}}
}

// readList reads an array of at most most elements. Further ones are checked, counted and dropped.
func readList[V any](c *cursor, most int, what string, read func() (V, bool)) []V {
	if c.shape() != shapeArray {
		c.wrongShape("an array of " + what)
		return nil
	}
	list := []V{}
	count := 0
	for range c.elements {
		if count++; count > most {
			c.skip()
			continue
		}
		if v, ok := read(); ok {
			list = append(list, v)
		}
	}
	wantAtMost(&c.problems, c.param(), count, most, what)
	return list
}

// readStruct adapts readObject to readList. An object with problems is kept: the request fails anyway, and later checks
// count on every element being there.
func readStruct[T any](c *cursor, known fields[T]) func() (T, bool) {
	return func() (T, bool) {
		var v T
		readObject(c, &v, known)
		return v, true
	}
}
