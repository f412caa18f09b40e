package jinja

import (
	"unicode/utf8"

	"sparrow/internal/mark"
)

// attr evaluates object.name: a method or attribute of the object or, without one, the item with the key name.
func attr(m *meter, object Value, name string) Value {
	switch o := object.(type) {
	case Undefined:
		panic(runtimef("%s is undefined: cannot read '%s' of it", o.what, name))
	case *Dict:
		if m, ok := method(o, name, dictMethods); ok {
			return m
		}
		if v, ok := o.lookup(name); ok {
			return v
		}
	case *List:
		if m, ok := method(o, name, listMethods); ok {
			return m
		}
	case string, *mark.Text:
		text, _ := asText(o)
		if m, ok := method(text, name, stringMethods); ok {
			return m
		}
	case *namespace:
		if v, ok := o.attrs.lookup(name); ok {
			return v
		}
	case *loopState:
		if v, ok := o.attr(name); ok {
			return v
		}
	case *macro:
		if name == "name" {
			return o.def.name
		}
	}
	return Undefined{"attribute '" + name + "' of " + typeName(object)}
}

// itemAt evaluates object[key]: the item at a key or index or, without one, a method or attribute.
func itemAt(m *meter, object, key Value) Value {
	m.touch(object, key)
	switch o := object.(type) {
	case Undefined:
		panic(runtimef("%s is undefined: cannot read %s of it", o.what, repr(key).String()))
	case *Dict:
		if v, ok := o.lookup(key); ok {
			return v
		}
	case *List:
		if i, _, isInt, _ := number(key); isInt {
			if i < 0 {
				i += int64(len(o.Items))
			}
			if i >= 0 && i < int64(len(o.Items)) {
				return o.Items[i]
			}
		}
	case string, *mark.Text:
		if i, _, isInt, _ := number(key); isInt {
			text, _ := asText(o)
			return charAt(text, i)
		}
	}
	if name, ok := asString(key); ok {
		return attr(m, object, name)
	}
	return Undefined{"an item of " + typeName(object)}
}

func charAt(t mark.Text, i int64) Value {
	s := t.String()
	if i < 0 {
		i += int64(utf8.RuneCountInString(s))
	}
	for at := range s {
		if i == 0 {
			_, size := utf8.DecodeRuneInString(s[at:])
			return textValue(t.Cut(at, at+size))
		}
		i--
	}
	return Undefined{"character of a string"}
}

// sequence returns the items of a list, tuple, mapping (its keys) or string (its characters).
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

// iterate is sequence, with its memory counted. The caller must not change the items.
func iterate(m *meter, v Value) []Value {
	if t, ok := asText(v); ok {
		each := 2
		if len(t.Spans()) > 0 {
			each = 6 // values per byte of a marked text
		}
		m.charge(valueBytes * each * len(t.String()))
	}
	items, ok := sequence(v)
	if !ok {
		panic(runtimef("cannot loop over %s", typeName(v)))
	}
	return items[:len(items):len(items)]
}

func (in *interp) evalSlice(e *sliceExpr, s *scope) Value {
	object := in.eval(e.object, s)
	var bounds [3]*int64
	for i, part := range []expr{e.start, e.stop, e.step} {
		if part == nil {
			continue
		}
		v := in.eval(part, s)
		if v == nil {
			continue
		}
		n := intArg(v)
		bounds[i] = &n
	}
	switch o := object.(type) {
	case *List:
		items := cut(o.Items, bounds)
		in.charge(valueBytes * len(items))
		return &List{Items: items, Tuple: o.Tuple}
	case string, *mark.Text:
		return in.newText(joined(cut(iterate(in.meter, o), bounds)))
	case Undefined:
		panic(runtimef("%s is undefined: cannot slice it", o.what))
	}
	return Undefined{"slice of " + typeName(object)}
}

// cut returns the items start, start+step, ... before stop, with Python's rules for missing (nil) and negative bounds.
func cut(items []Value, bounds [3]*int64) []Value {
	n := int64(len(items))
	step := int64(1)
	if bounds[2] != nil {
		step = *bounds[2]
	}
	if step == 0 {
		panic(runtimef("slice step is zero"))
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
	start, stop := clamp(bounds[0], 0, 0, n), clamp(bounds[1], n, 0, n)
	if step == 1 {
		return items[start:max(start, stop)]
	}
	if step < 0 {
		start, stop = clamp(bounds[0], n-1, -1, n-1), clamp(bounds[1], -1, -1, n-1)
	}
	step = min(max(step, -n-1), n+1) // a larger step has the same result, but could overflow
	var out []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; i += step {
		out = append(out, items[i])
	}
	return out
}
