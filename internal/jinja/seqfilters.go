package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// edgeFilter returns the filter first or last.
func edgeFilter(first bool) filterFunc {
	return func(in *interp, v Value, _ *callArgs) Value {
		items := in.iterate(v)
		switch n := len(items); {
		case n == 0:
			return Undefined{"the first or last item of an empty sequence"}
		case first:
			return items[0]
		default:
			return items[n-1]
		}
	}
}

func listFilter(in *interp, v Value, _ *callArgs) Value { return in.newList(in.iterate(v)) }

func itemsFilter(in *interp, v Value, _ *callArgs) Value {
	switch v := v.(type) {
	case Undefined:
		return NewList()
	case *Dict:
		in.charge(4 * valueBytes * v.Len())
		return v.items()
	}
	panic(runtimef("items needs a mapping, not %s", typeName(v)))
}

func reverseFilter(in *interp, v Value, _ *callArgs) Value {
	items := slices.Clone(in.iterate(v))
	slices.Reverse(items)
	if _, ok := asText(v); ok {
		return in.newText(joined(items))
	}
	return in.newList(items)
}

func joinFilter(in *interp, v Value, args []Value) Value {
	items := in.iterate(v)
	if !isAbsent(args[1]) {
		items = in.attrs(items, args[1])
	}
	return in.joinItems(items, in.printed(orElse(args[0], "")))
}

// attributeName returns an attribute given as a name or as an index, as text.
func attributeName(v Value) string {
	if i, ok := v.(int64); ok {
		return strconv.FormatInt(i, 10)
	}
	return textArg(v)
}

// path returns the attribute of a value at a path such as "function.name" or "0".
func (in *interp) path(v, attribute Value) Value {
	for part := range strings.SplitSeq(attributeName(attribute), ".") {
		var key Value = part
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			key = n
		}
		if _, undefined := v.(Undefined); undefined {
			return v
		}
		v = in.item(v, key)
	}
	return v
}

func (in *interp) attrs(items []Value, attribute Value) []Value {
	out := make([]Value, len(items))
	for i, item := range items {
		out[i] = in.path(item, attribute)
	}
	in.charge(valueBytes * len(out))
	return out
}

// iterateOrNone is iterate, but returns no items for false values: filters that select and map accept None.
func (in *interp) iterateOrNone(v Value) []Value {
	if !truth(v) {
		return nil
	}
	return in.iterate(v)
}

// mapFilter implements map(attribute="x", default=y) and map("filter", args...).
func mapFilter(in *interp, v Value, a *callArgs) Value {
	items := in.iterateOrNone(v)
	out := make([]Value, len(items))
	if len(a.pos) == 0 {
		args := a.bind("attribute", "default")
		if isAbsent(args[0]) {
			panic(runtimef("map needs a filter or an attribute"))
		}
		for i, item := range items {
			out[i] = in.path(item, args[0])
			if _, undefined := out[i].(Undefined); undefined {
				out[i] = orElse(args[1], out[i])
			}
		}
		return in.newList(out)
	}
	rest := &callArgs{pos: a.pos[1:], names: a.names, vals: a.vals}
	for i, item := range items {
		out[i] = in.filter(textArg(a.pos[0]), item, rest)
	}
	return in.newList(out)
}

// selectFilter returns the filter select (keep) or reject, which keeps the items that pass a test, or that do not.
func selectFilter(keep bool) filterFunc {
	return func(in *interp, v Value, a *callArgs) Value {
		return in.selectBy(v, a.pos, keep, func(item Value) Value { return item })
	}
}

// selectAttrFilter returns selectattr or rejectattr: selectFilter applied to an attribute of each item.
func selectAttrFilter(keep bool) filterFunc {
	return func(in *interp, v Value, a *callArgs) Value {
		if len(a.pos) == 0 {
			panic(runtimef("an attribute name is missing"))
		}
		return in.selectBy(v, a.pos[1:], keep, func(item Value) Value { return in.path(item, a.pos[0]) })
	}
}

func (in *interp) selectBy(v Value, args []Value, keep bool, subject func(Value) Value) Value {
	var out []Value
	for _, item := range in.iterateOrNone(v) {
		s := subject(item)
		ok := truth(s)
		if len(args) > 0 {
			ok = in.test(textArg(args[0]), s, args[1:])
		}
		in.step()
		if ok == keep {
			out = append(out, item)
		}
	}
	return in.newList(out)
}

// foldCase converts strings to lower case unless the comparison is case-sensitive.
func (in *interp) foldCase(v Value, sensitive bool) Value {
	if s, ok := asString(v); ok && !sensitive {
		in.charge(len(s))
		return strings.ToLower(s)
	}
	return v
}

// sortKeys returns the sort key of each item: the item itself, or one or several comma-separated attributes of it.
func (in *interp) sortKeys(items []Value, attribute Value, sensitive bool) []Value {
	keys := make([]Value, len(items))
	for i, item := range items {
		if !given(attribute) {
			keys[i] = in.foldCase(item, sensitive)
			continue
		}
		key := newTuple()
		for path := range strings.SplitSeq(attributeName(attribute), ",") {
			key.Items = append(key.Items, in.foldCase(in.path(item, path), sensitive))
		}
		keys[i] = key
	}
	in.charge(valueBytes * len(keys))
	return keys
}

func sortFilter(in *interp, v Value, args []Value) Value {
	items := in.iterate(v)
	keys := in.sortKeys(items, args[2], flag(args[1]))
	return in.sorted(items, keys, flag(args[0]))
}

// sorted sorts items by their keys; the sort is stable, also with reverse.
func (in *interp) sorted(items, keys []Value, reverse bool) Value {
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int {
		if reverse {
			a, b = b, a
		}
		return in.order(keys[a], keys[b])
	})
	out := make([]Value, len(items))
	for i, p := range places {
		out[i] = items[p]
	}
	return in.newList(out)
}

func dictsortFilter(in *interp, v Value, args []Value) Value {
	d, ok := v.(*Dict)
	if !ok {
		panic(runtimef("dictsort needs a mapping, not %s", typeName(v)))
	}
	by := d.keys
	if unmarked(args[1]) == "value" {
		by = d.vals
	}
	keys := in.sortKeys(by, absent{}, flag(args[0]))
	return in.sorted(d.items().Items, keys, flag(args[2]))
}

func uniqueFilter(in *interp, v Value, args []Value) Value {
	items := in.iterate(v)
	keys := in.sortKeys(items, args[1], flag(args[0]))
	seen := NewDict()
	var out []Value
	for i, item := range items {
		in.touch(keys[i])
		if _, twice := seen.lookup(keys[i]); twice {
			continue
		}
		if !seen.set(keys[i], true) {
			panic(runtimef("unique does not work on %s", typeName(keys[i])))
		}
		out = append(out, item)
	}
	return in.newList(out)
}

// extremeFilter implements min (sign -1) and max (sign 1).
func extremeFilter(sign int) filterFunc {
	return takes(func(in *interp, v Value, args []Value) Value {
		items := in.iterate(v)
		if len(items) == 0 {
			return Undefined{"the minimum or maximum of an empty sequence"}
		}
		keys := in.sortKeys(items, args[1], flag(args[0]))
		best := 0
		for i := range keys {
			if sign*in.order(keys[i], keys[best]) > 0 {
				best = i
			}
		}
		return items[best]
	}, "case_sensitive", "attribute")
}

func sumFilter(in *interp, v Value, args []Value) Value {
	items := in.iterate(v)
	if given(args[0]) {
		items = in.attrs(items, args[0])
	}
	total := orElse(args[1], int64(0))
	for _, item := range items {
		total = in.arithmetic("+", total, item)
	}
	return total
}
