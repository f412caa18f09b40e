package jinja

// methodFunc is a method of values of type T.
type methodFunc[T any] func(in *interp, self T, a *callArgs) Value

// takes returns a method whose arguments are bound to params. do receives one value per parameter, absent if it was not
// passed.
func takes[T any](do func(in *interp, self T, args []Value) Value, params ...string) methodFunc[T] {
	return func(in *interp, self T, a *callArgs) Value {
		return do(in, self, a.bind(params...))
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
		return fn(in, self, a)
	}}, true
}

// The methods of mappings and lists. None of them changes its object, because values are immutable.
var dictMethods = map[string]methodFunc[*Dict]{
	"items":  func(in *interp, d *Dict, a *callArgs) Value { return itemsFilter(in, d, a) },
	"keys":   func(in *interp, d *Dict, _ *callArgs) Value { return in.newList(d.keys) },
	"values": func(in *interp, d *Dict, _ *callArgs) Value { return in.newList(d.vals) },
	"get": takes(func(_ *interp, d *Dict, args []Value) Value {
		if v, ok := d.lookup(args[0]); ok {
			return v
		}
		return orElse(args[1], nil)
	}, "key", "default"),
	"copy": func(in *interp, d *Dict, _ *callArgs) Value { return callDict(in, &callArgs{pos: []Value{d}}) },
}

var listMethods = map[string]methodFunc[*List]{
	"index": takes(func(in *interp, l *List, args []Value) Value {
		for i, item := range l.Items {
			if in.equal(item, args[0]) {
				return int64(i)
			}
		}
		panic(runtimef("%s is not in the list", repr(args[0]).String()))
	}, "item"),
	"count": takes(func(in *interp, l *List, args []Value) Value {
		n := int64(0)
		for _, item := range l.Items {
			if in.equal(item, args[0]) {
				n++
			}
		}
		return n
	}, "item"),
	"copy": func(in *interp, l *List, _ *callArgs) Value { return in.newList(l.Items) },
}
