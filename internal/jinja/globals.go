package jinja

import (
	"fmt"

	"sparrow/internal/mark"
)

// globalTable holds the functions that every template can call. It is read-only.
var globalTable = map[string]Value{
	"range":           &function{"range", callRange},
	"dict":            &function{"dict", callDict},
	"namespace":       &function{"namespace", callNamespace},
	"raise_exception": &function{"raise_exception", callRaise},
	"strftime_now":    &function{"strftime_now", callStrftime},
}

func callRange(in *interp, a *callArgs) Value {
	if len(a.names) > 0 || len(a.pos) == 0 || len(a.pos) > 3 {
		panic(runtimef("range requires one to three integers"))
	}
	var n [3]int64
	for i, v := range a.pos {
		n[i] = intArg(v)
	}
	start, stop, step := int64(0), n[0], int64(1)
	if len(a.pos) > 1 {
		start, stop = n[0], n[1]
	}
	if len(a.pos) > 2 {
		if step = n[2]; step == 0 {
			panic(runtimef("range step is zero"))
		}
	}
	var items []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(items)%1024 == 0 {
			in.charge(valueBytes * 1024)
		}
		in.step()
		items = append(items, i)
		next := i + step
		if (next > i) != (step > 0) { // next overflowed
			break
		}
		i = next
	}
	return &List{Items: items}
}

func callDict(in *interp, a *callArgs) Value { return newDict(in.meter, a) }

// newDict makes a mapping of the arguments of dict().
func newDict(m *meter, a *callArgs) *Dict {
	d := NewDict()
	if len(a.pos) > 1 {
		panic(runtimef("dict takes at most one positional argument"))
	}
	for _, v := range a.pos {
		fill(m, d, v)
	}
	for i, name := range a.names {
		d.Set(name, a.vals[i])
	}
	m.charge(4 * valueBytes * d.Len())
	return d
}

// fill adds a mapping, or a list of pairs, to a mapping.
func fill(m *meter, d *Dict, v Value) {
	if other, ok := v.(*Dict); ok {
		for i, key := range other.keys {
			d.set(key, other.vals[i])
		}
		return
	}
	for _, item := range iterate(m, v) {
		pair := unpackValue(item, 2)
		m.touch(pair[0])
		if !d.set(pair[0], pair[1]) {
			panic(runtimef("%s cannot be a key", typeName(pair[0])))
		}
	}
}

func callNamespace(in *interp, a *callArgs) Value {
	return &namespace{newDict(in.meter, a)}
}

func callRaise(_ *interp, a *callArgs) Value {
	message := orElse(a.bind("message")[0], "no message")
	panic(failure{fmt.Errorf("%w: %s", ErrRaised, str(message))})
}

func callStrftime(in *interp, a *callArgs) Value {
	format := textArg(a.bind("format")[0])
	if in.now == nil {
		panic(runtimef("strftime_now: no clock was given to the template"))
	}
	return in.newText(mark.Plain(strftime(in.now(), format)))
}
