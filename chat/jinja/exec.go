package jinja

import "sparrow/internal/mark"

// signal is how a list of statements ended.
type signal int

const (
	normal signal = iota
	broke
	continued
)

func (in *interp) run(body []stmt, s *scope) (signal, error) {
	for _, st := range body {
		sig, err := in.exec(st, s)
		if err != nil {
			return normal, place(st.place(), err)
		}
		if sig != normal {
			return sig, nil
		}
	}
	return normal, nil
}

func (in *interp) exec(st stmt, s *scope) (signal, error) {
	if err := in.descend(); err != nil {
		return normal, err
	}
	defer func() { in.depth-- }()
	switch st := st.(type) {
	case *textStmt:
		return normal, in.write(mark.Plain(st.text))
	case *outputStmt:
		v, err := in.eval(st.value, s)
		if err != nil {
			return normal, err
		}
		return normal, in.write(text(v))
	case *ifStmt:
		return in.execIf(st, s)
	case *forStmt:
		return normal, in.execFor(st, s)
	case *setStmt:
		return normal, in.execSet(st, s)
	case *setBlockStmt:
		return normal, in.execSetBlock(st, s)
	case *withStmt:
		inner := s.child()
		for i, name := range st.names {
			v, err := in.eval(st.values[i], s)
			if err != nil {
				return normal, err
			}
			inner.set(name, v)
		}
		return in.run(st.body, inner)
	case *filterStmt:
		captured, err := in.capture(st.body, s.child())
		if err != nil {
			return normal, err
		}
		v, err := in.filterChain(st.filter, captured, s)
		if err != nil {
			return normal, err
		}
		return normal, in.write(text(v))
	case *macroStmt:
		s.set(st.macro.name, &macro{def: st.macro, scope: s})
		return normal, nil
	case *callStmt:
		return normal, in.execCall(st, s)
	case *groupStmt:
		return in.run(st.body, s)
	case *breakStmt:
		return broke, nil
	case *continueStmt:
		return continued, nil
	}
	return normal, runtimef("unknown statement %T", st)
}

func (in *interp) execIf(st *ifStmt, s *scope) (signal, error) {
	for i, test := range st.tests {
		v, err := in.eval(test, s)
		if err != nil {
			return normal, err
		}
		if truth(v) {
			return in.run(st.bodies[i], s)
		}
	}
	return in.run(st.other, s)
}

func (in *interp) execFor(st *forStmt, s *scope) error {
	v, err := in.eval(st.iter, s)
	if err != nil {
		return err
	}
	items, err := in.iterate(v)
	if err != nil {
		return place(st.iter.place(), err)
	}
	if st.filter != nil {
		if items, err = in.filterItems(st, items, s); err != nil {
			return err
		}
	}
	if len(items) == 0 {
		_, err := in.run(st.other, s.child())
		return err
	}
	loop := &loopState{items: items}
	for i := range items {
		if err := in.step(); err != nil {
			return err
		}
		loop.at = i
		inner := s.child()
		inner.set("loop", loop)
		if err := bindTargets(inner, st.targets, st.unpack, items[i]); err != nil {
			return err
		}
		sig, err := in.run(st.body, inner)
		if err != nil {
			return err
		}
		if sig == broke {
			break
		}
	}
	return nil
}

// filterItems keeps the items for which the loop's condition holds.
func (in *interp) filterItems(st *forStmt, items []Value, s *scope) ([]Value, error) {
	var kept []Value
	for _, item := range items {
		inner := s.child()
		if err := bindTargets(inner, st.targets, st.unpack, item); err != nil {
			return nil, err
		}
		v, err := in.eval(st.filter, inner)
		if err != nil {
			return nil, err
		}
		if truth(v) {
			kept = append(kept, item)
		}
	}
	return kept, in.charge(valueBytes * len(kept))
}

// bindTargets assigns a loop's item to its names.
func bindTargets(s *scope, names []string, unpack bool, item Value) error {
	if !unpack {
		s.set(names[0], item)
		return nil
	}
	parts, err := unpackValue(item, len(names))
	if err != nil {
		return err
	}
	for i, name := range names {
		s.set(name, parts[i])
	}
	return nil
}

func unpackValue(v Value, n int) ([]Value, error) {
	parts, ok := sequence(v)
	if !ok {
		return nil, runtimef("cannot unpack %s", typeName(v))
	}
	if len(parts) != n {
		return nil, runtimef("cannot unpack %d values into %d names", len(parts), n)
	}
	return parts, nil
}

func (in *interp) execSet(st *setStmt, s *scope) error {
	v, err := in.eval(st.value, s)
	if err != nil {
		return err
	}
	if !st.unpack {
		return in.assign(st.targets[0], v, s)
	}
	parts, err := unpackValue(v, len(st.targets))
	if err != nil {
		return err
	}
	for i, t := range st.targets {
		if err := in.assign(t, parts[i], s); err != nil {
			return err
		}
	}
	return nil
}

func (in *interp) assign(t target, v Value, s *scope) error {
	if t.attr == "" {
		s.set(t.name, v)
		return nil
	}
	ns, ok := in.lookup(s, t.name).(*namespace)
	if !ok {
		return place(t.at, runtimef("cannot assign '%s.%s': '%s' is not a namespace", t.name, t.attr, t.name))
	}
	ns.attrs.Set(t.attr, v)
	return nil
}

func (in *interp) execSetBlock(st *setBlockStmt, s *scope) error {
	v, err := in.capture(st.body, s.child())
	if err != nil {
		return err
	}
	if st.filter != nil {
		if v, err = in.filterChain(st.filter, v, s); err != nil {
			return err
		}
	}
	return in.assign(st.target, v, s)
}

// execCall runs a macro with the body of the call block as its caller().
func (in *interp) execCall(st *callStmt, s *scope) error {
	callee, err := in.eval(st.call.callee, s)
	if err != nil {
		return err
	}
	args, err := in.evalArgs(st.call.args, s)
	if err != nil {
		return err
	}
	args.set("caller", &macro{def: st.caller, scope: s})
	v, err := in.call(callee, args)
	if err != nil {
		return err
	}
	return in.write(text(v))
}
