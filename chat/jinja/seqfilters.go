package jinja

import (
	"slices"
	"strconv"
	"strings"

	"sparrow/internal/mark"
)

func firstFilter(in *interp, v Value, _ *callArgs) (Value, error) {
	items, err := in.iterate(v)
	if err != nil || len(items) == 0 {
		return Undefined{"the first item of an empty sequence"}, err
	}
	return items[0], nil
}

func lastFilter(in *interp, v Value, _ *callArgs) (Value, error) {
	items, err := in.iterate(v)
	if err != nil || len(items) == 0 {
		return Undefined{"the last item of an empty sequence"}, err
	}
	return items[len(items)-1], nil
}

func listFilter(in *interp, v Value, _ *callArgs) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	return in.newList(slices.Clone(items))
}

func itemsFilter(in *interp, v Value, _ *callArgs) (Value, error) {
	switch v := v.(type) {
	case Undefined:
		return NewList(), nil
	case *Dict:
		return v.items(), in.charge(4 * valueBytes * v.Len())
	}
	return nil, runtimef("items needs a mapping, not %s", typeName(v))
}

func reverseFilter(in *interp, v Value, _ *callArgs) (Value, error) {
	if _, ok := asText(v); ok {
		chars, err := in.iterate(v)
		if err != nil {
			return nil, err
		}
		slices.Reverse(chars)
		return in.newText(joined(chars))
	}
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	items = slices.Clone(items)
	slices.Reverse(items)
	return in.newList(items)
}

func joinFilter(in *interp, v Value, args []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if !isAbsent(args[1]) {
		if items, err = in.attrs(items, args[1]); err != nil {
			return nil, err
		}
	}
	sep := mark.Text{}
	if !isAbsent(args[0]) {
		sep = text(args[0])
	}
	return in.joinItems(items, sep)
}

// path reads an attribute path such as "function.name" or "0" of a value.
func (in *interp) path(v, attribute Value) (Value, error) {
	if i, ok := attribute.(int64); ok {
		return in.item(v, i)
	}
	for part := range strings.SplitSeq(str(attribute), ".") {
		var key Value = part
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			key = n
		}
		if _, undefined := v.(Undefined); undefined {
			return v, nil
		}
		next, err := in.item(v, key)
		if err != nil {
			return nil, err
		}
		v = next
	}
	return v, nil
}

func (in *interp) attrs(items []Value, attribute Value) ([]Value, error) {
	out := make([]Value, len(items))
	for i, item := range items {
		v, err := in.path(item, attribute)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, in.charge(valueBytes * len(out))
}

// iterateOrNone is iterate, with nothing for any false value: the filters that pick and map accept none.
func (in *interp) iterateOrNone(v Value) ([]Value, error) {
	if !truth(v) {
		return nil, nil
	}
	return in.iterate(v)
}

// mapFilter is map(attribute="x", default=y) or map("filter", args...).
func mapFilter(in *interp, v Value, a *callArgs) (Value, error) {
	items, err := in.iterateOrNone(v)
	if err != nil {
		return nil, err
	}
	out := make([]Value, len(items))
	if len(a.pos) == 0 {
		args, err := a.bind("map", "attribute", "default")
		if err != nil {
			return nil, err
		}
		if isAbsent(args[0]) {
			return nil, runtimef("map needs a filter or an attribute")
		}
		for i, item := range items {
			if out[i], err = in.path(item, args[0]); err != nil {
				return nil, err
			}
			if _, undefined := out[i].(Undefined); undefined && !isAbsent(args[1]) {
				out[i] = args[1]
			}
		}
		return in.newList(out)
	}
	rest := &callArgs{pos: a.pos[1:], names: a.names, vals: a.vals}
	for i, item := range items {
		if out[i], err = in.filter(str(a.pos[0]), item, rest); err != nil {
			return nil, err
		}
	}
	return in.newList(out)
}

// selectFilter keeps the items that pass a test (or are true), or with keep false those that do not.
func selectFilter(keep bool) filterFunc {
	return func(in *interp, v Value, a *callArgs) (Value, error) {
		return in.selectBy(v, a.pos, keep, func(item Value) (Value, error) { return item, nil })
	}
}

// selectAttrFilter is selectFilter on an attribute of each item.
func selectAttrFilter(keep bool) filterFunc {
	return func(in *interp, v Value, a *callArgs) (Value, error) {
		if len(a.pos) == 0 {
			return nil, runtimef("an attribute name is missing")
		}
		return in.selectBy(v, a.pos[1:], keep, func(item Value) (Value, error) { return in.path(item, a.pos[0]) })
	}
}

func (in *interp) selectBy(v Value, args []Value, keep bool, subject func(Value) (Value, error)) (Value, error) {
	items, err := in.iterateOrNone(v)
	if err != nil {
		return nil, err
	}
	var out []Value
	for _, item := range items {
		s, err := subject(item)
		if err != nil {
			return nil, err
		}
		ok := truth(s)
		if len(args) > 0 {
			if ok, err = in.test(str(args[0]), s, args[1:]); err != nil {
				return nil, err
			}
		}
		if err := in.step(); err != nil {
			return nil, err
		}
		if ok == keep {
			out = append(out, item)
		}
	}
	return in.newList(out)
}

// foldCase lowers strings for comparisons that ignore case.
func foldCase(v Value, sensitive bool) Value {
	if s, ok := asString(v); ok && !sensitive {
		return strings.ToLower(s)
	}
	return v
}

// sortKeys are the values by which items are compared: the item, or one or several comma-separated attributes of it.
func (in *interp) sortKeys(items []Value, attribute Value, sensitive bool) ([]Value, error) {
	keys := make([]Value, len(items))
	for i, item := range items {
		if isAbsent(attribute) || attribute == nil {
			keys[i] = foldCase(item, sensitive)
			continue
		}
		paths := []Value{attribute}
		if s, ok := asString(attribute); ok {
			paths = nil
			for p := range strings.SplitSeq(s, ",") {
				paths = append(paths, p)
			}
		}
		key := newTuple()
		for _, p := range paths {
			v, err := in.path(item, p)
			if err != nil {
				return nil, err
			}
			key.Items = append(key.Items, foldCase(v, sensitive))
		}
		keys[i] = key
	}
	return keys, in.charge(valueBytes * len(keys))
}

func sortFilter(in *interp, v Value, args []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	keys, err := in.sortKeys(items, args[2], flag(args[1]))
	if err != nil {
		return nil, err
	}
	return in.sorted(items, keys, flag(args[0]))
}

// sorted orders items by their keys; equal keys keep their order, also when reversed.
func (in *interp) sorted(items, keys []Value, reverse bool) (Value, error) {
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	if reverse {
		slices.Reverse(places)
	}
	if err := in.sortByKey(places, func(i int) Value { return keys[i] }); err != nil {
		return nil, err
	}
	if reverse {
		slices.Reverse(places)
	}
	out := make([]Value, len(items))
	for i, p := range places {
		out[i] = items[p]
	}
	return in.newList(out)
}

func dictsortFilter(in *interp, v Value, args []Value) (Value, error) {
	d, ok := v.(*Dict)
	if !ok {
		return nil, runtimef("dictsort needs a mapping, not %s", typeName(v))
	}
	by := d.keys
	if unmarked(args[1]) == "value" {
		by = d.vals
	}
	keys, err := in.sortKeys(by, absent{}, flag(args[0]))
	if err != nil {
		return nil, err
	}
	return in.sorted(d.items().Items, keys, flag(args[2]))
}

func uniqueFilter(in *interp, v Value, args []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	keys, err := in.sortKeys(items, args[1], flag(args[0]))
	if err != nil {
		return nil, err
	}
	seen := NewDict()
	var out []Value
	for i, item := range items {
		if _, twice := seen.lookup(keys[i]); twice {
			continue
		}
		if !seen.set(keys[i], true) {
			return nil, runtimef("unique does not work on %s", typeName(keys[i]))
		}
		out = append(out, item)
	}
	return in.newList(out)
}

// extremeFilter is min (sign -1) or max (sign 1).
func extremeFilter(sign int) filterFunc {
	return takes("min or max", func(in *interp, v Value, args []Value) (Value, error) {
		items, err := in.iterate(v)
		if err != nil || len(items) == 0 {
			return Undefined{"the extreme of an empty sequence"}, err
		}
		keys, err := in.sortKeys(items, args[1], flag(args[0]))
		if err != nil {
			return nil, err
		}
		best := 0
		for i := range keys {
			c, err := in.order(keys[i], keys[best])
			if err != nil {
				return nil, err
			}
			if c*sign > 0 {
				best = i
			}
		}
		return items[best], nil
	}, "case_sensitive", "attribute")
}

func sumFilter(in *interp, v Value, args []Value) (Value, error) {
	items, err := in.iterate(v)
	if err != nil {
		return nil, err
	}
	if !isAbsent(args[0]) && args[0] != nil {
		if items, err = in.attrs(items, args[0]); err != nil {
			return nil, err
		}
	}
	var total Value = int64(0)
	if !isAbsent(args[1]) {
		total = args[1]
	}
	for _, item := range items {
		if total, err = in.arithmetic("+", total, item); err != nil {
			return nil, err
		}
	}
	return total, nil
}
