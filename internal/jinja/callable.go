package jinja

import "slices"

// callable is a macro, a method or a global function.
type callable interface {
	call(in *interp, args *callArgs) Value
}

// callArgs holds the evaluated arguments of a call.
type callArgs struct {
	fn    string // name of the called function, for error messages
	pos   []Value
	names []string // names of the keyword arguments in vals
	vals  []Value
}

func (a *callArgs) set(name string, v Value) {
	a.names, a.vals = append(a.names, name), append(a.vals, v)
}

// absent is the value of a parameter for which no argument was passed.
type absent struct{}

// bind returns the arguments in the order of params; absent stands for arguments that were not passed.
func (a *callArgs) bind(params ...string) []Value {
	if len(a.pos) > len(params) {
		panic(runtimef("%s takes at most %d arguments, not %d", a.fn, len(params), len(a.pos)))
	}
	out := make([]Value, len(params))
	for i := range out {
		out[i] = absent{}
	}
	copy(out, a.pos)
	for i, name := range a.names {
		j := slices.Index(params, name)
		if j < 0 {
			panic(runtimef("%s has no argument '%s'", a.fn, name))
		}
		if !isAbsent(out[j]) {
			panic(runtimef("%s got '%s' twice", a.fn, name))
		}
		out[j] = a.vals[i]
	}
	return out
}

func isAbsent(v Value) bool {
	_, ok := v.(absent)
	return ok
}

// given reports whether an argument was passed and is not None.
func given(v Value) bool { return v != nil && !isAbsent(v) }

// flag reports whether an argument was passed and is true.
func flag(v Value) bool { return given(v) && truth(v) }

// orElse returns v, or other if v is absent.
func orElse(v, other Value) Value {
	if isAbsent(v) {
		return other
	}
	return v
}

func textArg(v Value) string {
	if isAbsent(v) {
		panic(runtimef("a required argument is missing"))
	}
	s, ok := asString(v)
	if !ok {
		panic(runtimef("expected a string, not %s", typeName(v)))
	}
	return s
}

func intArg(v Value) int64 {
	i, _, isInt, _ := number(v)
	if !isInt {
		panic(runtimef("expected an integer, not %s", typeName(v)))
	}
	return i
}

// function is a callable implemented in Go.
type function struct {
	name string
	fn   func(in *interp, args *callArgs) Value
}

func (f *function) call(in *interp, args *callArgs) Value {
	args.fn = f.name
	return f.fn(in, args)
}

// macro is a macro with the scope in which it was defined.
type macro struct {
	def   *macroDef
	scope *scope
}

// call runs the body in a new scope inside the macro's scope, and returns its output.
func (m *macro) call(in *interp, args *callArgs) Value {
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
		panic(runtimef("macro '%s' takes %d arguments, not %d", def.name, len(def.params), len(args.pos)))
	}
	kwargs := NewDict()
	for i, name := range args.names {
		switch {
		case name == "caller":
			s.set("caller", args.vals[i])
		case slices.Contains(def.params, name):
			if _, twice := s.vars[name]; twice {
				panic(runtimef("macro '%s' got '%s' twice", def.name, name))
			}
			s.set(name, args.vals[i])
		case !def.kwargs:
			panic(runtimef("macro '%s' has no argument '%s'", def.name, name))
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
		s.set(name, in.eval(def.defaults[i-firstDefault], s))
	}
	s.set("varargs", extra)
	s.set("kwargs", kwargs)
	return in.capture(def.body, s)
}

// call evaluates a call of callee, which must be a callable.
func (in *interp) call(callee Value, args *callArgs) Value {
	outer := in.enter(in.at)
	f, ok := callee.(callable)
	if !ok {
		if u, isUndefined := callee.(Undefined); isUndefined {
			panic(runtimef("%s is undefined and cannot be called", u.what))
		}
		panic(runtimef("%s cannot be called", typeName(callee)))
	}
	in.touch(args.pos...)
	in.touch(args.vals...)
	v := f.call(in, args)
	in.leave(outer)
	return v
}

func (in *interp) evalArgs(a arguments, s *scope) *callArgs {
	out := &callArgs{pos: in.evalAll(a.positional, s)}
	if a.star != nil {
		out.pos = append(out.pos, iterate(in.meter, in.eval(a.star, s))...)
	}
	for i, e := range a.named {
		out.set(a.names[i], in.eval(e, s))
	}
	if a.starStar != nil {
		v := in.eval(a.starStar, s)
		d, ok := v.(*Dict)
		if !ok {
			panic(runtimef("** needs a mapping, not %s", typeName(v)))
		}
		for i, key := range d.keys {
			out.set(textArg(key), d.vals[i])
		}
	}
	return out
}
