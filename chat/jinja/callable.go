package jinja

import "slices"

// callable is a macro, a method or a global function.
type callable interface {
	call(in *interp, args *callArgs) (Value, error)
}

// callArgs are evaluated arguments.
type callArgs struct {
	pos   []Value
	names []string // keyword names in order, parallel to vals
	vals  []Value
}

func (a *callArgs) set(name string, v Value) {
	a.names, a.vals = append(a.names, name), append(a.vals, v)
}

// absent marks a parameter that was not passed.
type absent struct{}

// bind gives the arguments the order of params; those not passed are absent.
func (a *callArgs) bind(fn string, params ...string) ([]Value, error) {
	if len(a.pos) > len(params) {
		return nil, runtimef("%s takes at most %d arguments, not %d", fn, len(params), len(a.pos))
	}
	out := make([]Value, len(params))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
next:
	for i, name := range a.names {
		for j, param := range params {
			if param != name {
				continue
			}
			if _, free := out[j].(absent); !free {
				return nil, runtimef("%s got '%s' twice", fn, name)
			}
			out[j] = a.vals[i]
			continue next
		}
		return nil, runtimef("%s has no argument '%s'", fn, name)
	}
	return out, nil
}

func isAbsent(v Value) bool {
	_, ok := v.(absent)
	return ok
}

// flag is whether an argument was passed and is true.
func flag(v Value) bool { return !isAbsent(v) && truth(v) }

// function is a callable written in Go.
type function struct {
	name string
	fn   func(in *interp, args *callArgs) (Value, error)
}

func (f *function) call(in *interp, args *callArgs) (Value, error) { return f.fn(in, args) }

// macro is a macro with the scope it was defined in.
type macro struct {
	def   *macroDef
	scope *scope
}

// call runs the body in a new scope inside the macro's own, and returns the text it wrote.
func (m *macro) call(in *interp, args *callArgs) (Value, error) {
	s := m.scope.child()
	def := m.def
	extra := newTuple()
	for i, v := range args.pos {
		if i < len(def.params) {
			s.set(def.params[i], v)
		} else {
			extra.Items = append(extra.Items, v)
		}
	}
	if len(extra.Items) > 0 && !def.varargs {
		return nil, runtimef("macro '%s' takes %d arguments, not %d", def.name, len(def.params), len(args.pos))
	}
	kwargs := NewDict()
	for i, name := range args.names {
		switch {
		case name == "caller":
			s.set("caller", args.vals[i])
		case slices.Contains(def.params, name):
			if _, twice := s.vars[name]; twice {
				return nil, runtimef("macro '%s' got '%s' twice", def.name, name)
			}
			s.set(name, args.vals[i])
		case !def.kwargs:
			return nil, runtimef("macro '%s' has no argument '%s'", def.name, name)
		default:
			kwargs.Set(name, args.vals[i])
		}
	}
	firstDefault := len(def.params) - len(def.defaults)
	for i, name := range def.params {
		if _, passed := s.vars[name]; passed {
			continue
		}
		if i < firstDefault {
			s.set(name, Undefined{"parameter '" + name + "'"})
			continue
		}
		v, err := in.eval(def.defaults[i-firstDefault], s)
		if err != nil {
			return nil, err
		}
		s.set(name, v)
	}
	s.set("varargs", extra)
	s.set("kwargs", kwargs)
	return in.capture(def.body, s)
}

// call calls a value.
func (in *interp) call(callee Value, args *callArgs) (Value, error) {
	if err := in.descend(); err != nil {
		return nil, err
	}
	defer func() { in.depth-- }()
	f, ok := callee.(callable)
	if !ok {
		if u, isUndefined := callee.(Undefined); isUndefined {
			return nil, runtimef("%s is undefined and cannot be called", u.what)
		}
		return nil, runtimef("%s cannot be called", typeName(callee))
	}
	return f.call(in, args)
}

func (in *interp) evalArgs(a arguments, s *scope) (*callArgs, error) {
	out := &callArgs{}
	for _, e := range a.positional {
		v, err := in.eval(e, s)
		if err != nil {
			return nil, err
		}
		out.pos = append(out.pos, v)
	}
	if a.star != nil {
		v, err := in.eval(a.star, s)
		if err != nil {
			return nil, err
		}
		items, err := in.iterate(v)
		if err != nil {
			return nil, err
		}
		out.pos = append(out.pos, items...)
	}
	for i, e := range a.named {
		v, err := in.eval(e, s)
		if err != nil {
			return nil, err
		}
		out.set(a.names[i], v)
	}
	if a.starStar != nil {
		v, err := in.eval(a.starStar, s)
		if err != nil {
			return nil, err
		}
		d, ok := v.(*Dict)
		if !ok {
			return nil, runtimef("** needs a mapping, not %s", typeName(v))
		}
		for i, key := range d.keys {
			out.set(str(key), d.vals[i])
		}
	}
	return out, nil
}
