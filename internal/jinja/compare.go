package jinja

import "strings"

// equal implements Python's ==. Every visited value counts as a step, because nested lists with shared items can be
// exponentially large.
func equal(m *meter, a, b Value) bool { return equalDepth(m, a, b, 0) }

func equalDepth(m *meter, a, b Value, depth int) bool {
	if depth > maxDataDepth {
		panic(failure{limitf("value nested deeper than %d levels", maxDataDepth)})
	}
	m.touch(a)
	a, b = unmarked(a), unmarked(b)
	if ai, af, aInt, ok := number(a); ok {
		bi, bf, bInt, ok := number(b)
		if aInt && bInt {
			return ai == bi
		}
		return ok && af == bf
	}
	switch a := a.(type) {
	case *List:
		b, ok := b.(*List)
		if !ok || a == b || a.Tuple != b.Tuple || len(a.Items) != len(b.Items) {
			return a == b
		}
		for i := range a.Items {
			if !equalDepth(m, a.Items[i], b.Items[i], depth+1) {
				return false
			}
		}
		return true
	case *Dict:
		b, ok := b.(*Dict)
		if !ok || a == b || a.Len() != b.Len() {
			return a == b
		}
		for i, key := range a.keys {
			other, found := b.lookup(key)
			if !found || !equalDepth(m, a.vals[i], other, depth+1) {
				return false
			}
		}
		return true
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case nil, string, BigInt, *namespace:
		return a == b
	}
	return false
}

// order returns -1, 0 or 1 for values that Python can order.
func order(m *meter, a, b Value) int { return orderDepth(m, a, b, 0) }

func orderDepth(m *meter, a, b Value, depth int) int {
	m.touch(a)
	ai, af, aInt, aOK := number(a)
	bi, bf, bInt, bOK := number(b)
	switch {
	case aOK && bOK && aInt && bInt:
		return sign(ai < bi, ai > bi)
	case aOK && bOK:
		return sign(af < bf, af > bf)
	}
	if as, ok := asString(a); ok {
		if bs, ok := asString(b); ok {
			return strings.Compare(as, bs)
		}
	}
	al, aList := a.(*List)
	bl, bList := b.(*List)
	if aList && bList && al.Tuple == bl.Tuple && depth < maxDataDepth {
		for i := range min(len(al.Items), len(bl.Items)) {
			same := equal(m, al.Items[i], bl.Items[i])
			if same {
				continue
			}
			return orderDepth(m, al.Items[i], bl.Items[i], depth+1)
		}
		return sign(len(al.Items) < len(bl.Items), len(al.Items) > len(bl.Items))
	}
	panic(runtimef("cannot order %s and %s", typeName(a), typeName(b)))
}

func sign(less, greater bool) int {
	switch {
	case less:
		return -1
	case greater:
		return 1
	}
	return 0
}

// holds implements Python's "item in container".
func holds(m *meter, container, item Value) bool {
	m.touch(container, item)
	switch c := unmarked(container).(type) {
	case string:
		s, ok := asString(item)
		if !ok {
			panic(runtimef("'in' needs a string on its left, not %s, if its right is a string",
				typeName(item)))
		}
		return strings.Contains(c, s)
	case *List:
		for _, x := range c.Items {
			if equal(m, x, item) {
				return true
			}
		}
		return false
	case *Dict:
		_, found := c.lookup(item)
		return found
	case Undefined:
		return false
	case *namespace:
		panic(runtimef("'in' does not work on a namespace"))
	}
	panic(runtimef("'in' needs a list, mapping or string on its right, not %s", typeName(container)))
}
