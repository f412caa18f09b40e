package jinja

import "fmt"

// globalTable holds the functions every template can call. It is never written after start-up.
var globalTable = map[string]Value{
	"range":           &function{"range", callRange},
	"dict":            &function{"dict", callDict},
	"namespace":       &function{"namespace", callNamespace},
	"raise_exception": &function{"raise_exception", callRaise},
	"strftime_now":    &function{"strftime_now", callStrftime},
}

func callRange(in *interp, a *callArgs) (Value, error) {
	if len(a.names) > 0 || len(a.pos) == 0 || len(a.pos) > 3 {
		return nil, runtimef("range takes one to three integers")
	}
	var n [3]int64
	for i, v := range a.pos {
		var isInt, ok bool
		if n[i], _, isInt, ok = number(v); !ok || !isInt {
			return nil, runtimef("range takes integers, not %s", typeName(v))
		}
	}
	start, stop, step := int64(0), n[0], int64(1)
	if len(a.pos) > 1 {
		start, stop = n[0], n[1]
	}
	if len(a.pos) > 2 {
		if step = n[2]; step == 0 {
			return nil, runtimef("range step is zero")
		}
	}
	var items []Value
	for i := start; step > 0 && i < stop || step < 0 && i > stop; {
		if len(items)%1024 == 0 {
			if err := in.charge(valueBytes * 1024); err != nil {
				return nil, err
			}
		}
		if err := in.step(); err != nil {
			return nil, err
		}
		items = append(items, i)
		next := i + step
		if (next > i) != (step > 0) { // beyond 64 bits
			break
		}
		i = next
	}
	return &List{Items: items}, nil
}

func callDict(in *interp, a *callArgs) (Value, error) {
	d := NewDict()
	if len(a.pos) > 1 {
		return nil, runtimef("dict takes at most one positional argument")
	}
	for _, v := range a.pos {
		if err := in.fill(d, v); err != nil {
			return nil, err
		}
	}
	for i, name := range a.names {
		d.Set(name, a.vals[i])
	}
	return d, in.charge(4 * valueBytes * d.Len())
}

// fill adds a mapping, or a list of pairs, to a mapping.
func (in *interp) fill(d *Dict, v Value) error {
	if other, ok := v.(*Dict); ok {
		for i, key := range other.keys {
			d.set(key, other.vals[i])
		}
		return nil
	}
	items, err := in.iterate(v)
	if err != nil {
		return err
	}
	for _, item := range items {
		pair, err := unpackValue(item, 2)
		if err != nil {
			return err
		}
		if !d.set(pair[0], pair[1]) {
			return runtimef("%s cannot be a key", typeName(pair[0]))
		}
	}
	return nil
}

func callNamespace(in *interp, a *callArgs) (Value, error) {
	d, err := callDict(in, a)
	if err != nil {
		return nil, err
	}
	return &namespace{d.(*Dict)}, nil
}

func callRaise(_ *interp, a *callArgs) (Value, error) {
	args, err := a.bind("raise_exception", "message")
	if err != nil {
		return nil, err
	}
	message := "no message"
	if !isAbsent(args[0]) {
		message = str(args[0])
	}
	return nil, fmt.Errorf("%w: %s", ErrRaised, message)
}

func callStrftime(in *interp, a *callArgs) (Value, error) {
	args, err := a.bind("strftime_now", "format")
	if err != nil {
		return nil, err
	}
	format, ok := asString(args[0])
	if !ok {
		return nil, runtimef("strftime_now takes a format string")
	}
	if in.now == nil {
		return nil, runtimef("strftime_now: no clock was given to the template")
	}
	text, err := strftime(in.now(), format)
	if err != nil {
		return nil, err
	}
	return in.newString(text)
}
