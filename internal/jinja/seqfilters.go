package jinja

import (
	"slices"
	"strconv"
	"strings"
)

// edgeFilter returns the filter first or last.
func edgeFilter(first bool) filterFunc {
	return func(m *meter, v Value, _ *callArgs) Value {
		items := iterate(m, v)
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

func listFilter(m *meter, v Value, _ *callArgs) Value { return m.newList(iterate(m, v)) }

func itemsFilter(m *meter, v Value, _ *callArgs) Value {
	switch v := v.(type) {
	case Undefined:
		return NewList()
	case *Dict:
		m.charge(4 * valueBytes * v.Len())
		return v.items()
	}
	panic(runtimef("items needs a mapping, not %s", typeName(v)))
}

func reverseFilter(m *meter, v Value, _ *callArgs) Value {
	items := slices.Clone(iterate(m, v))
	slices.Reverse(items)
	if _, ok := asText(v); ok {
		return m.newText(joined(items))
	}
	return m.newList(items)
}

func joinFilter(m *meter, v Value, args []Value) Value {
	items := iterate(m, v)
	if !isAbsent(args[1]) {
		items = attrs(m, items, args[1])
	}
	return joinItems(m, items, m.printed(orElse(args[0], "")))
}

// attributeName returns an attribute given as a name or as an index, as text.
func attributeName(v Value) string {
	if i, ok := v.(int64); ok {
		return strconv.FormatInt(i, 10)
	}
	return textArg(v)
}

// path returns the attribute of a value at a path such as "function.name" or "0".
func path(m *meter, v, attribute Value) Value {
	for part := range strings.SplitSeq(attributeName(attribute), ".") {
		var key Value = part
		if n, err := strconv.ParseInt(part, 10, 64); err == nil {
			key = n
		}
		if _, undefined := v.(Undefined); undefined {
			return v
		}
		v = itemAt(m, v, key)
	}
	return v
}

func attrs(m *meter, items []Value, attribute Value) []Value {
	out := make([]Value, len(items))
	for i, item := range items {
		out[i] = path(m, item, attribute)
	}
	m.charge(valueBytes * len(out))
	return out
}

// iterateOrNone is iterate, but returns no items for false values: filters that select and map accept None.
func iterateOrNone(m *meter, v Value) []Value {
	if !truth(v) {
		return nil
	}
	return iterate(m, v)
}

// mapFilter implements map(attribute="x", default=y) and map("filter", args...).
func mapFilter(m *meter, v Value, a *callArgs) Value {
	items := iterateOrNone(m, v)
	out := make([]Value, len(items))
	if len(a.pos) == 0 {
		args := a.bind("attribute", "default")
		if isAbsent(args[0]) {
			panic(runtimef("map needs a filter or an attribute"))
		}
		for i, item := range items {
			out[i] = path(m, item, args[0])
			if _, undefined := out[i].(Undefined); undefined {
				out[i] = orElse(args[1], out[i])
			}
		}
		return m.newList(out)
	}
	rest := &callArgs{pos: a.pos[1:], names: a.names, vals: a.vals}
	for i, item := range items {
		out[i] = filter(m, textArg(a.pos[0]), item, rest)
	}
	return m.newList(out)
}

// selectFilter returns the filter select (keep) or reject, which keeps the items that pass a test, or that do not.
func selectFilter(keep bool) filterFunc {
	return func(m *meter, v Value, a *callArgs) Value {
		return selectBy(m, v, a.pos, keep, func(item Value) Value { return item })
	}
}

// selectAttrFilter returns selectattr or rejectattr: selectFilter applied to an attribute of each item.
func selectAttrFilter(keep bool) filterFunc {
	return func(m *meter, v Value, a *callArgs) Value {
		if len(a.pos) == 0 {
			panic(runtimef("an attribute name is missing"))
		}
		return selectBy(m, v, a.pos[1:], keep, func(item Value) Value { return path(m, item, a.pos[0]) })
	}
}

func selectBy(m *meter, v Value, args []Value, keep bool, subject func(Value) Value) Value {
	var out []Value
	for _, item := range iterateOrNone(m, v) {
		s := subject(item)
		ok := truth(s)
		if len(args) > 0 {
			ok = testValue(m, textArg(args[0]), s, args[1:])
		}
		m.step()
		if ok == keep {
			out = append(out, item)
		}
	}
	return m.newList(out)
}

// foldCase converts strings to lower case unless the comparison is case-sensitive.
func foldCase(m *meter, v Value, sensitive bool) Value {
	if s, ok := asString(v); ok && !sensitive {
		m.charge(len(s))
		return strings.ToLower(s)
	}
	return v
}

// sortKeys returns the sort key of each item: the item itself, or one or several comma-separated attributes of it.
func sortKeys(m *meter, items []Value, attribute Value, sensitive bool) []Value {
	keys := make([]Value, len(items))
	for i, item := range items {
		if !given(attribute) {
			keys[i] = foldCase(m, item, sensitive)
			continue
		}
		key := newTuple()
		for each := range strings.SplitSeq(attributeName(attribute), ",") {
			key.Items = append(key.Items, foldCase(m, path(m, item, each), sensitive))
		}
		keys[i] = key
	}
	m.charge(valueBytes * len(keys))
	return keys
}

func sortFilter(m *meter, v Value, args []Value) Value {
	items := iterate(m, v)
	keys := sortKeys(m, items, args[2], flag(args[1]))
	return sorted(m, items, keys, flag(args[0]))
}

// sorted sorts items by their keys; the sort is stable, also with reverse.
func sorted(m *meter, items, keys []Value, reverse bool) Value {
	places := make([]int, len(items))
	for i := range places {
		places[i] = i
	}
	slices.SortStableFunc(places, func(a, b int) int {
		if reverse {
			a, b = b, a
		}
		return order(m, keys[a], keys[b])
	})
	out := make([]Value, len(items))
	for i, p := range places {
		out[i] = items[p]
	}
	return m.newList(out)
}

func dictsortFilter(m *meter, v Value, args []Value) Value {
	d, ok := v.(*Dict)
	if !ok {
		panic(runtimef("dictsort needs a mapping, not %s", typeName(v)))
	}
	by := d.keys
	if unmarked(args[1]) == "value" {
		by = d.vals
	}
	keys := sortKeys(m, by, absent{}, flag(args[0]))
	return sorted(m, d.items().Items, keys, flag(args[2]))
}

func uniqueFilter(m *meter, v Value, args []Value) Value {
	items := iterate(m, v)
	keys := sortKeys(m, items, args[1], flag(args[0]))
	seen := NewDict()
	var out []Value
	for i, item := range items {
		m.touch(keys[i])
		if _, twice := seen.lookup(keys[i]); twice {
			continue
		}
		if !seen.set(keys[i], true) {
			panic(runtimef("unique does not work on %s", typeName(keys[i])))
		}
		out = append(out, item)
	}
	return m.newList(out)
}

// extremeFilter implements min (sign -1) and max (sign 1).
func extremeFilter(sign int) filterFunc {
	return takes(func(m *meter, v Value, args []Value) Value {
		items := iterate(m, v)
		if len(items) == 0 {
			return Undefined{"the minimum or maximum of an empty sequence"}
		}
		keys := sortKeys(m, items, args[1], flag(args[0]))
		best := 0
		for i := range keys {
			if sign*order(m, keys[i], keys[best]) > 0 {
				best = i
			}
		}
		return items[best]
	}, "case_sensitive", "attribute")
}

func sumFilter(m *meter, v Value, args []Value) Value {
	items := iterate(m, v)
	if given(args[0]) {
		items = attrs(m, items, args[0])
	}
	total := orElse(args[1], int64(0))
	for _, item := range items {
		total = arithmetic(m, "+", total, item)
	}
	return total
}
