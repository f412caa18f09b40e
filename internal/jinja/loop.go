package jinja

// loopState is the loop variable of a for statement.
type loopState struct {
	items   []Value
	at      int
	changed Value // value of the last call of changed()
	seen    bool
}

func (l *loopState) attr(name string) (Value, bool) {
	n, i := int64(len(l.items)), int64(l.at)
	switch name {
	case "index":
		return i + 1, true
	case "index0":
		return i, true
	case "revindex":
		return n - i, true
	case "revindex0":
		return n - i - 1, true
	case "first":
		return i == 0, true
	case "last":
		return i == n-1, true
	case "length":
		return n, true
	case "depth":
		return int64(1), true
	case "depth0":
		return int64(0), true
	case "previtem":
		if i > 0 {
			return l.items[i-1], true
		}
		return Undefined{"the item before the first"}, true
	case "nextitem":
		if i < n-1 {
			return l.items[i+1], true
		}
		return Undefined{"the item after the last"}, true
	case "cycle":
		return &function{"loop.cycle", l.cycle}, true
	case "changed":
		return &function{"loop.changed", l.changedCall}, true
	}
	return nil, false
}

func (l *loopState) cycle(_ *interp, a *callArgs) Value {
	if len(a.pos) == 0 {
		panic(runtimef("loop.cycle needs at least one value"))
	}
	return a.pos[l.at%len(a.pos)]
}

func (l *loopState) changedCall(in *interp, a *callArgs) Value {
	now := newTuple(a.pos...)
	if l.seen && equal(in.meter, l.changed, now) {
		return false
	}
	l.changed, l.seen = now, true
	return true
}
