package jinja

// methodFunc is a method of values of type T.
type methodFunc[T any] func(m *meter, self T, a *callArgs) Value

// takes returns a method whose arguments are bound to params. do receives one value per parameter, absent if it was not
// passed.
func takes[T any](do func(m *meter, self T, args []Value) Value, params ...string) methodFunc[T] {
	return func(m *meter, self T, a *callArgs) Value {
		return do(m, self, a.bind(params...))
	}
}

// method returns a method bound to its object; ok is false if the table does not contain it.
func method[T any](self T, name string, table map[string]methodFunc[T]) (Value, bool) {
	fn, ok := table[name]
	if !ok {
		return nil, false
	}
	return &function{name, func(in *interp, a *callArgs) Value {
		in.touch(self)
		return fn(in.meter, self, a)
	}}, true
}

// The methods of mappings and lists. None of them changes its object, because values are immutable.
var dictMethods = map[string]methodFunc[*Dict]{
	"items":  func(m *meter, d *Dict, a *callArgs) Value { return itemsFilter(m, d, a) },
	"keys":   func(m *meter, d *Dict, _ *callArgs) Value { return m.newList(d.keys) },
	"values": func(m *meter, d *Dict, _ *callArgs) Value { return m.newList(d.vals) },
	"get": takes(func(_ *meter, d *Dict, args []Value) Value {
		if v, ok := d.lookup(args[0]); ok {
			return v
		}
		return orElse(args[1], nil)
	}, "key", "default"),
	"copy": func(m *meter, d *Dict, _ *callArgs) Value { return newDict(m, &callArgs{pos: []Value{d}}) },
}

var listMethods = map[string]methodFunc[*List]{
	"index": takes(func(m *meter, l *List, args []Value) Value {
		for i, item := range l.Items {
			if equal(m, item, args[0]) {
				return int64(i)
			}
		}
		panic(runtimef("%s is not in the list", repr(args[0]).String()))
	}, "item"),
	"count": takes(func(m *meter, l *List, args []Value) Value {
		n := int64(0)
		for _, item := range l.Items {
			if equal(m, item, args[0]) {
				n++
			}
		}
		return n
	}, "item"),
	"copy": func(m *meter, l *List, _ *callArgs) Value { return m.newList(l.Items) },
}
