package jinja

import "sparrow/internal/mark"

// signal states how a list of statements ended: at its end, or by break or continue.
type signal int

const (
	normal signal = iota
	broke
	continued
)

func (in *interp) run(body []stmt, s *scope) signal {
	for _, st := range body {
		outer := in.enter(st.place())
		sig := in.exec(st, s)
		in.leave(outer)
		if sig != normal {
			return sig
		}
	}
	return normal
}

func (in *interp) exec(st stmt, s *scope) signal {
	switch st := st.(type) {
	case *textStmt:
		in.write(mark.Plain(st.text))
	case *outputStmt:
		in.write(text(in.eval(st.value, s)))
	case *ifStmt:
		return in.execIf(st, s)
	case *forStmt:
		in.execFor(st, s)
	case *setStmt:
		in.bind(st.targets, in.eval(st.value, s), s)
	case *setBlockStmt:
		v := in.capture(st.body, s.child())
		in.assign(st.target, in.filterChain(st.filter, v, s), s)
	case *withStmt:
		inner := s.child()
		for i, name := range st.names {
			inner.set(name, in.eval(st.values[i], s))
		}
		return in.run(st.body, inner)
	case *filterStmt:
		captured := in.capture(st.body, s.child())
		in.write(text(in.filterChain(st.filter, captured, s)))
	case *macroStmt:
		s.set(st.macro.name, &macro{def: st.macro, scope: s})
	case *callStmt:
		// The body of the block becomes the macro's caller().
		callee := in.eval(st.call.callee, s)
		args := in.evalArgs(st.call.args, s)
		args.set("caller", &macro{def: st.caller, scope: s})
		in.write(text(in.call(callee, args)))
	case *groupStmt:
		return in.run(st.body, s)
	case *breakStmt:
		return broke
	case *continueStmt:
		return continued
	}
	return normal
}

func (in *interp) execIf(st *ifStmt, s *scope) signal {
	for i, test := range st.tests {
		if truth(in.eval(test, s)) {
			return in.run(st.bodies[i], s)
		}
	}
	return in.run(st.other, s)
}

func (in *interp) execFor(st *forStmt, s *scope) {
	v := in.eval(st.iter, s)
	in.at = st.iter.place()
	items := iterate(in.meter, v)
	if st.filter != nil {
		items = in.filterItems(st, items, s)
	}
	if len(items) == 0 {
		in.run(st.other, s.child())
	}
	loop := &loopState{items: items}
	for i := range items {
		in.step()
		loop.at = i
		inner := s.child()
		inner.set("loop", loop)
		in.bind(st.targets, items[i], inner)
		if in.run(st.body, inner) == broke {
			break
		}
	}
}

// filterItems returns the items for which the condition of the loop is true.
func (in *interp) filterItems(st *forStmt, items []Value, s *scope) []Value {
	var kept []Value
	for _, item := range items {
		inner := s.child()
		in.bind(st.targets, item, inner)
		if truth(in.eval(st.filter, inner)) {
			kept = append(kept, item)
		}
	}
	in.charge(valueBytes * len(kept))
	return kept
}

// bind assigns a value to targets.
func (in *interp) bind(ts targets, v Value, s *scope) {
	if !ts.unpack {
		in.assign(ts.list[0], v, s)
		return
	}
	for i, part := range unpackValue(v, len(ts.list)) {
		in.assign(ts.list[i], part, s)
	}
}

func unpackValue(v Value, n int) []Value {
	parts, ok := sequence(v)
	if !ok {
		panic(runtimef("cannot unpack %s", typeName(v)))
	}
	if len(parts) != n {
		panic(runtimef("cannot unpack %d values into %d names", len(parts), n))
	}
	return parts
}

func (in *interp) assign(t target, v Value, s *scope) {
	if t.attr == "" {
		s.set(t.name, v)
		return
	}
	ns, ok := in.lookup(s, t.name).(*namespace)
	if !ok {
		in.at = t.at
		panic(runtimef("cannot assign '%s.%s': '%s' is not a namespace", t.name, t.attr, t.name))
	}
	ns.attrs.Set(t.attr, v)
}
