package jinja

import "strings"

// equal is Python's ==. Shared lists nested in each other can be exponentially large, so the values visited count as
// steps.
func (in *interp) equal(a, b Value) (bool, error) {
	budget := in.limits.Steps - in.steps
	before := budget
	same := equalDepth(a, b, 0, &budget)
	in.steps += before - budget
	if budget <= 0 {
		return false, limitf("more than %d steps", in.limits.Steps)
	}
	return same, nil
}

func equalDepth(a, b Value, depth int, budget *int) bool {
	if *budget--; *budget <= 0 || depth > maxDataDepth {
		*budget = 0
		return false
	}
	if ai, af, aInt, ok := number(a); ok {
		bi, bf, bInt, ok := number(b)
		if !ok {
			return false
		}
		if aInt && bInt {
			return ai == bi
		}
		return af == bf
	}
	switch a := a.(type) {
	case *List:
		b, ok := b.(*List)
		return ok && equalLists(a, b, depth, budget)
	case *Dict:
		b, ok := b.(*Dict)
		return ok && equalDicts(a, b, depth, budget)
	case Undefined:
		_, ok := b.(Undefined)
		return ok
	case string:
		*budget -= len(a) / bytesPerStep
		return Value(a) == b
	case nil, BigInt, *namespace:
		return a == b
	}
	return false
}

func equalLists(a, b *List, depth int, budget *int) bool {
	if a == b {
		return true
	}
	if a.Tuple != b.Tuple || len(a.Items) != len(b.Items) {
		return false
	}
	for i := range a.Items {
		if !equalDepth(a.Items[i], b.Items[i], depth+1, budget) {
			return false
		}
	}
	return true
}

func equalDicts(a, b *Dict, depth int, budget *int) bool {
	if a == b {
		return true
	}
	if a.Len() != b.Len() {
		return false
	}
	for i, key := range a.keys {
		other, found := b.lookup(key)
		if !found || !equalDepth(a.vals[i], other, depth+1, budget) {
			return false
		}
	}
	return true
}

// order is -1, 0 or 1 for values Python can order.
func (in *interp) order(a, b Value) (int, error) { return in.orderDepth(a, b, 0) }

func (in *interp) orderDepth(a, b Value, depth int) (int, error) {
	if err := in.touch(a); err != nil {
		return 0, err
	}
	ai, af, aInt, aOK := number(a)
	bi, bf, bInt, bOK := number(b)
	switch {
	case aOK && bOK && aInt && bInt:
		return sign(ai < bi, ai > bi), nil
	case aOK && bOK:
		return sign(af < bf, af > bf), nil
	}
	if as, ok := a.(string); ok {
		if bs, ok := b.(string); ok {
			return strings.Compare(as, bs), nil
		}
	}
	al, aList := a.(*List)
	bl, bList := b.(*List)
	if aList && bList && al.Tuple == bl.Tuple && depth < maxDataDepth {
		for i := range min(len(al.Items), len(bl.Items)) {
			same, err := in.equal(al.Items[i], bl.Items[i])
			if err != nil {
				return 0, err
			}
			if same {
				continue
			}
			return in.orderDepth(al.Items[i], bl.Items[i], depth+1)
		}
		return sign(len(al.Items) < len(bl.Items), len(al.Items) > len(bl.Items)), nil
	}
	return 0, runtimef("cannot order %s and %s", typeName(a), typeName(b))
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

// holds is Python's "item in container".
func (in *interp) holds(container, item Value) (bool, error) {
	if err := in.touch(container, item); err != nil {
		return false, err
	}
	switch c := container.(type) {
	case string:
		s, ok := item.(string)
		if !ok {
			return false, runtimef("'in' needs a string on its left, not %s, when its right is a string",
				typeName(item))
		}
		return strings.Contains(c, s), nil
	case *List:
		for _, x := range c.Items {
			if same, err := in.equal(x, item); same || err != nil {
				return same, err
			}
		}
		return false, nil
	case *Dict:
		_, found := c.lookup(item)
		return found, nil
	case Undefined:
		return false, nil
	case *namespace:
		return false, runtimef("'in' does not work on a namespace")
	}
	return false, runtimef("'in' needs a list, mapping or string on its right, not %s", typeName(container))
}
