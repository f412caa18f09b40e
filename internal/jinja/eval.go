package jinja

import (
	"slices"

	"sparrow/internal/mark"
)

// eval returns the value of an expression.
func (in *interp) eval(e expr, s *scope) Value {
	outer := in.enter(e.place())
	v := in.evalNode(e, s)
	in.leave(outer)
	return v
}

func (in *interp) evalNode(e expr, s *scope) Value {
	switch e := e.(type) {
	case *constExpr:
		return e.value
	case *nameExpr:
		return in.lookup(s, e.name)
	case *listExpr:
		items := in.evalAll(e.items, s)
		in.charge(valueBytes * len(items))
		return &List{Items: items, Tuple: e.tuple}
	case *dictExpr:
		return in.evalDict(e, s)
	case *condExpr:
		return in.evalCond(e, s)
	case *binaryExpr:
		return in.evalBinary(e, s)
	case *concatExpr:
		return in.evalConcat(e, s)
	case *unaryExpr:
		return in.evalUnary(e, s)
	case *compareExpr:
		return in.evalCompare(e, s)
	case *attrExpr:
		object := in.eval(e.object, s)
		return attr(in.meter, object, e.name)
	case *itemExpr:
		object := in.eval(e.object, s)
		key := in.eval(e.key, s)
		return itemAt(in.meter, object, key)
	case *sliceExpr:
		return in.evalSlice(e, s)
	case *callExpr:
		callee := in.eval(e.callee, s)
		args := in.evalArgs(e.args, s)
		return in.call(callee, args)
	case *filterExpr:
		operand := in.eval(e.operand, s)
		return in.applyFilter(e, operand, s)
	case *testExpr:
		return in.evalTest(e, s)
	}
	panic(runtimef("unknown expression %T", e))
}

func (in *interp) evalAll(list []expr, s *scope) []Value {
	out := make([]Value, len(list))
	for i, e := range list {
		v := in.eval(e, s)
		out[i] = v
	}
	return out
}

func (in *interp) evalDict(e *dictExpr, s *scope) Value {
	d := NewDict()
	for i := range e.keys {
		key := in.eval(e.keys[i], s)
		value := in.eval(e.values[i], s)
		in.touch(key)
		if !d.set(key, value) {
			panic(runtimef("%s cannot be a key", typeName(key)))
		}
	}
	in.charge(4 * valueBytes * len(e.keys))
	return d
}

func (in *interp) evalCond(e *condExpr, s *scope) Value {
	test := in.eval(e.test, s)
	switch {
	case truth(test):
		return in.eval(e.yes, s)
	case e.no == nil:
		return Undefined{"the inline if without else"}
	}
	return in.eval(e.no, s)
}

// evalBinary evaluates and, or and arithmetic. Left operands are evaluated in a loop, not by recursion, so that a long
// chain of + does not count as nesting.
func (in *interp) evalBinary(e *binaryExpr, s *scope) Value {
	var chain []*binaryExpr
	var left expr = e
	for {
		b, ok := left.(*binaryExpr)
		if !ok {
			break
		}
		chain = append(chain, b)
		left = b.left
	}
	v := in.eval(left, s)
	for _, b := range slices.Backward(chain) {
		in.step()
		in.at = b.at
		switch b.op {
		case "and", "or":
			if truth(v) == (b.op == "and") {
				v = in.eval(b.right, s)
			}
		default:
			v = arithmetic(in.meter, b.op, v, in.eval(b.right, s))
		}
	}
	return v
}

func (in *interp) evalConcat(e *concatExpr, s *scope) Value {
	var b mark.Builder
	for _, part := range e.parts {
		v := in.eval(part, s)
		in.add(&b, text(v))
	}
	return textValue(b.Text())
}

func (in *interp) evalUnary(e *unaryExpr, s *scope) Value {
	v := in.eval(e.operand, s)
	if e.op == "not" {
		return !truth(v)
	}
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		panic(runtimef("'%s' does not work on %s", e.op, typeName(v)))
	case e.op == "+" && isInt:
		return i
	case e.op == "+":
		return f
	case isInt:
		return arithmetic(in.meter, "-", int64(0), i)
	}
	return -f
}

// evalCompare evaluates a chain of comparisons: a < b < c compares each pair and stops at the first comparison that is
// false.
func (in *interp) evalCompare(e *compareExpr, s *scope) Value {
	left := in.eval(e.first, s)
	for i, op := range e.ops {
		right := in.eval(e.rest[i], s)
		if !compare(in.meter, op, left, right) {
			return false
		}
		left = right
	}
	return true
}

func compare(m *meter, op string, left, right Value) bool {
	switch op {
	case "==":
		return equal(m, left, right)
	case "!=":
		return !equal(m, left, right)
	case "in":
		return holds(m, right, left)
	case "not in":
		return !holds(m, right, left)
	}
	c := order(m, left, right)
	switch op {
	case "<":
		return c < 0
	case "<=":
		return c <= 0
	case ">":
		return c > 0
	}
	return c >= 0
}

func (in *interp) evalTest(e *testExpr, s *scope) Value {
	operand := in.eval(e.operand, s)
	args := in.evalArgs(e.args, s)
	return testValue(in.meter, e.name, operand, args.pos)
}

// filterChain applies the filters of a block to its text, which replaces the nil operand of the innermost filter.
func (in *interp) filterChain(e expr, text Value, s *scope) Value {
	f, ok := e.(*filterExpr)
	if !ok {
		return text
	}
	if f.operand != nil {
		v := in.filterChain(f.operand, text, s)
		text = v
	}
	return in.applyFilter(f, text, s)
}

func (in *interp) applyFilter(e *filterExpr, operand Value, s *scope) Value {
	args := in.evalArgs(e.args, s)
	in.at = e.at
	return filter(in.meter, e.name, operand, args)
}
