package jinja

import "sort"

// methodFunc is a method of values of type T.
type methodFunc[T any] func(in *interp, self T, a *callArgs) (Value, error)

// takes is a method whose arguments are bound to params: it gets one value for each of them, absent where none was
// passed.
func takes[T any](name string, do func(in *interp, self T, args []Value) (Value, error),
	params ...string) methodFunc[T] {
	return func(in *interp, self T, a *callArgs) (Value, error) {
		args, err := a.bind(name, params...)
		if err != nil {
			return nil, err
		}
		return do(in, self, args)
	}
}

// method binds a method to its object.
func method[T any](self T, name string, table map[string]methodFunc[T]) (Value, bool) {
	fn, ok := table[name]
	if !ok {
		return nil, false
	}
	return &function{name, func(in *interp, a *callArgs) (Value, error) {
		if err := in.touch(self); err != nil {
			return nil, err
		}
		return fn(in, self, a)
	}}, true
}

var dictMethods = map[string]methodFunc[*Dict]{
	"items": func(in *interp, d *Dict, _ *callArgs) (Value, error) {
		return d.items(), in.charge(4 * valueBytes * d.Len())
	},
	"keys": func(in *interp, d *Dict, _ *callArgs) (Value, error) {
		return in.newList(append([]Value(nil), d.keys...))
	},
	"values": func(in *interp, d *Dict, _ *callArgs) (Value, error) {
		return in.newList(append([]Value(nil), d.vals...))
	},
	"get": takes("get", func(_ *interp, d *Dict, args []Value) (Value, error) {
		if v, ok := d.lookup(args[0]); ok {
			return v, nil
		}
		if isAbsent(args[1]) {
			return nil, nil
		}
		return args[1], nil
	}, "key", "default"),
	"copy": func(in *interp, d *Dict, _ *callArgs) (Value, error) {
		c := NewDict()
		for i, key := range d.keys {
			c.set(key, d.vals[i])
		}
		return c, in.charge(4 * valueBytes * d.Len())
	},
	"update": func(in *interp, d *Dict, a *callArgs) (Value, error) {
		v, err := callDict(in, a)
		if err != nil {
			return nil, err
		}
		return nil, in.fill(d, v)
	},
}

var listMethods = map[string]methodFunc[*List]{
	"append": takes("append", func(in *interp, l *List, args []Value) (Value, error) {
		if l.Tuple || isAbsent(args[0]) {
			return nil, runtimef("append needs a list and one item")
		}
		l.Items = append(l.Items, args[0])
		return nil, in.charge(2 * valueBytes)
	}, "item"),
	"extend": takes("extend", func(in *interp, l *List, args []Value) (Value, error) {
		items, err := in.iterate(args[0])
		if err != nil || l.Tuple {
			return nil, runtimef("extend needs a list and something to loop over")
		}
		if err := in.charge(2 * valueBytes * len(items)); err != nil {
			return nil, err
		}
		l.Items = append(l.Items, items...)
		return nil, nil
	}, "items"),
	"index": takes("index", func(in *interp, l *List, args []Value) (Value, error) {
		for i, item := range l.Items {
			same, err := in.equal(item, args[0])
			if same || err != nil {
				return int64(i), err
			}
		}
		return nil, runtimef("%s is not in the list", repr(args[0]).String())
	}, "item"),
	"count": takes("count", func(in *interp, l *List, args []Value) (Value, error) {
		n := int64(0)
		for _, item := range l.Items {
			same, err := in.equal(item, args[0])
			if err != nil {
				return nil, err
			}
			if same {
				n++
			}
		}
		return n, nil
	}, "item"),
	"copy": func(in *interp, l *List, _ *callArgs) (Value, error) {
		return in.newList(append([]Value(nil), l.Items...))
	},
}

// sortByKey sorts places stably by the value each one stands for.
func (in *interp) sortByKey(places []int, key func(int) Value) error {
	var failed error
	sort.SliceStable(places, func(i, j int) bool {
		c, err := in.order(key(places[i]), key(places[j]))
		if err != nil && failed == nil {
			failed = err
		}
		return c < 0
	})
	return failed
}
