package jinja

import (
	"unicode/utf8"

	"sparrow/internal/mark"
)

// attr is object.name: a method or attribute of the object's type, or else a key.
func (in *interp) attr(object Value, name string) (Value, error) {
	switch o := object.(type) {
	case Undefined:
		return nil, runtimef("%s is undefined: cannot read '%s' of it", o.what, name)
	case *Dict:
		if m, ok := method(o, name, dictMethods); ok {
			return m, nil
		}
		if v, ok := o.lookup(name); ok {
			return v, nil
		}
	case *List:
		if m, ok := method(o, name, listMethods); ok {
			return m, nil
		}
	case string, *mark.Text:
		text, _ := asText(o)
		if m, ok := method(text, name, stringMethods); ok {
			return m, nil
		}
	case *namespace:
		if v, ok := o.attrs.lookup(name); ok {
			return v, nil
		}
	case *loopState:
		if v, ok := o.attr(name); ok {
			return v, nil
		}
	case *macro:
		if name == "name" {
			return o.def.name, nil
		}
	}
	return Undefined{"attribute '" + name + "' of " + typeName(object)}, nil
}

// item is object[key]: a key or index, or else a method or attribute.
func (in *interp) item(object, key Value) (Value, error) {
	if err := in.touch(object, key); err != nil {
		return nil, err
	}
	switch o := object.(type) {
	case Undefined:
		return nil, runtimef("%s is undefined: cannot read %s of it", o.what, repr(key).String())
	case *Dict:
		if v, ok := o.lookup(key); ok {
			return v, nil
		}
	case *List:
		if i, _, isInt, ok := number(key); ok && isInt {
			if i < 0 {
				i += int64(len(o.Items))
			}
			if i >= 0 && i < int64(len(o.Items)) {
				return o.Items[i], nil
			}
		}
	case string, *mark.Text:
		if i, _, isInt, ok := number(key); ok && isInt {
			text, _ := asText(o)
			return charAt(text, i), nil
		}
	}
	if name, ok := asString(key); ok {
		return in.attr(object, name)
	}
	return Undefined{repr(key).String() + " of " + typeName(object)}, nil
}

func charAt(t mark.Text, i int64) Value {
	s := t.String()
	if i < 0 {
		i += int64(utf8.RuneCountInString(s))
	}
	if i >= 0 {
		for at, r := range s {
			if i == 0 && len(t.Spans()) == 0 {
				return string(r)
			}
			if i == 0 {
				_, size := utf8.DecodeRuneInString(s[at:])
				return textValue(t.Cut(at, at+size))
			}
			i--
		}
	}
	return Undefined{"character of a string"}
}

// sequence is the items of a list, tuple, mapping (its keys) or string (its characters).
func sequence(v Value) ([]Value, bool) {
	switch v := v.(type) {
	case *List:
		return v.Items, true
	case *Dict:
		return v.keys, true
	case string:
		return characters(mark.Plain(v)), true
	case *mark.Text:
		return characters(*v), true
	case Undefined:
		return nil, true
	}
	return nil, false
}

// iterate is sequence with memory counted and a copy taken, so that appending to a list while looping over it does not
// change the loop.
func (in *interp) iterate(v Value) ([]Value, error) {
	if t, ok := asText(v); ok {
		each := 2
		if len(t.Spans()) > 0 {
			each = 6 // a text with its marks
		}
		if err := in.charge(valueBytes * each * len(t.String())); err != nil {
			return nil, err
		}
	}
	items, ok := sequence(v)
	if !ok {
		return nil, runtimef("cannot loop over %s", typeName(v))
	}
	return items[:len(items):len(items)], nil
}

func (in *interp) evalSlice(e *sliceExpr, s *scope) (Value, error) {
	object, err := in.eval(e.object, s)
	if err != nil {
		return nil, err
	}
	var bounds [3]*int64
	for i, part := range []expr{e.start, e.stop, e.step} {
		if part == nil {
			continue
		}
		v, err := in.eval(part, s)
		if err != nil {
			return nil, err
		}
		if v == nil {
			continue
		}
		n, _, isInt, ok := number(v)
		if !ok || !isInt {
			return nil, runtimef("slice parts must be integers, not %s", typeName(v))
		}
		bounds[i] = &n
	}
	switch o := object.(type) {
	case *List:
		items, err := in.cut(o.Items, bounds)
		return &List{Items: items, Tuple: o.Tuple}, err
	case string:
		if err := in.charge(valueBytes * len(o)); err != nil {
			return nil, err
		}
		items, err := cutRunes([]rune(o), bounds)
		return string(items), err
	case *mark.Text:
		chars, err := in.iterate(o)
		if err != nil {
			return nil, err
		}
		if chars, err = cutRunes(chars, bounds); err != nil {
			return nil, err
		}
		return in.newText(joined(chars))
	case Undefined:
		return nil, runtimef("%s is undefined: cannot slice it", o.what)
	}
	return Undefined{"slice of " + typeName(object)}, nil
}

func (in *interp) cut(items []Value, bounds [3]*int64) ([]Value, error) {
	out, err := cutRunes(items, bounds)
	if err != nil {
		return nil, err
	}
	return out, in.charge(valueBytes * len(out))
}

// cutRunes takes items start, start+step, ... before stop, with Python's rules for missing and negative bounds.
func cutRunes[T any](items []T, bounds [3]*int64) ([]T, error) {
	n := int64(len(items))
	step := int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		return nil, runtimef("slice step is zero")
	}
	clamp := func(p *int64, missing, low, high int64) int64 {
		if p == nil {
			return missing
		}
		v := *p
		if v < 0 {
			v += n
		}
		return min(max(v, low), high)
	}
	var out []T
	if step > 0 {
		start, stop := clamp(bounds[0], 0, 0, n), clamp(bounds[1], n, 0, n)
		if step == 1 {
			return items[start:max(start, stop):max(start, stop)], nil
		}
		for i := start; i < stop; {
			out = append(out, items[i])
			if step > stop-i {
				break
			}
			i += step
		}
		return out, nil
	}
	start, stop := clamp(bounds[0], n-1, -1, n-1), clamp(bounds[1], -1, -1, n-1)
	for i := start; i > stop; {
		out = append(out, items[i])
		if step < stop-i {
			break
		}
		i += step
	}
	return out, nil
}
