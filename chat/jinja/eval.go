package jinja

import "sparrow/internal/mark"

// eval computes an expression.
func (in *interp) eval(e expr, s *scope) (Value, error) {
	if err := in.descend(); err != nil {
		in.depth--
		return nil, place(e.place(), err)
	}
	v, err := in.evalNode(e, s)
	in.depth--
	if err != nil {
		return nil, place(e.place(), err)
	}
	return v, nil
}

func (in *interp) evalNode(e expr, s *scope) (Value, error) {
	switch e := e.(type) {
	case *constExpr:
		return e.value, nil
	case *nameExpr:
		return in.lookup(s, e.name), nil
	case *listExpr:
		items, err := in.evalAll(e.items, s)
		if err != nil {
			return nil, err
		}
		return &List{Items: items, Tuple: e.tuple}, in.charge(valueBytes * len(items))
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
		object, err := in.eval(e.object, s)
		if err != nil {
			return nil, err
		}
		return in.attr(object, e.name)
	case *itemExpr:
		object, err := in.eval(e.object, s)
		if err != nil {
			return nil, err
		}
		key, err := in.eval(e.key, s)
		if err != nil {
			return nil, err
		}
		return in.item(object, key)
	case *sliceExpr:
		return in.evalSlice(e, s)
	case *callExpr:
		callee, err := in.eval(e.callee, s)
		if err != nil {
			return nil, err
		}
		args, err := in.evalArgs(e.args, s)
		if err != nil {
			return nil, err
		}
		return in.call(callee, args)
	case *filterExpr:
		operand, err := in.eval(e.operand, s)
		if err != nil {
			return nil, err
		}
		return in.applyFilter(e, operand, s)
	case *testExpr:
		return in.evalTest(e, s)
	}
	return nil, runtimef("unknown expression %T", e)
}

func (in *interp) evalAll(list []expr, s *scope) ([]Value, error) {
	out := make([]Value, len(list))
	for i, e := range list {
		v, err := in.eval(e, s)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

func (in *interp) evalDict(e *dictExpr, s *scope) (Value, error) {
	d := NewDict()
	for i := range e.keys {
		key, err := in.eval(e.keys[i], s)
		if err != nil {
			return nil, err
		}
		value, err := in.eval(e.values[i], s)
		if err != nil {
			return nil, err
		}
		if !d.set(key, value) {
			return nil, runtimef("%s cannot be a key", typeName(key))
		}
	}
	return d, in.charge(4 * valueBytes * len(e.keys))
}

func (in *interp) evalCond(e *condExpr, s *scope) (Value, error) {
	test, err := in.eval(e.test, s)
	if err != nil {
		return nil, err
	}
	switch {
	case truth(test):
		return in.eval(e.yes, s)
	case e.no == nil:
		return Undefined{"the inline if without else"}, nil
	}
	return in.eval(e.no, s)
}

// evalBinary computes and, or and arithmetic. The left operand of a long chain is reached by a loop, not by recursion,
// so that joining many strings with + does not count as nesting.
func (in *interp) evalBinary(e *binaryExpr, s *scope) (Value, error) {
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
	v, err := in.eval(left, s)
	for i := len(chain) - 1; i >= 0 && err == nil; i-- {
		b := chain[i]
		if err = in.step(); err != nil {
			break
		}
		if b.op == "and" || b.op == "or" {
			if truth(v) == (b.op == "and") {
				v, err = in.eval(b.right, s)
			}
			continue
		}
		var right Value
		if right, err = in.eval(b.right, s); err == nil {
			v, err = in.arithmetic(b.op, v, right)
			err = place(b.at, err)
		}
	}
	return v, err
}

func (in *interp) evalConcat(e *concatExpr, s *scope) (Value, error) {
	var b mark.Builder
	for _, part := range e.parts {
		v, err := in.eval(part, s)
		if err != nil {
			return nil, err
		}
		if err := in.add(&b, text(v)); err != nil {
			return nil, err
		}
	}
	return textValue(b.Text()), nil
}

func (in *interp) evalUnary(e *unaryExpr, s *scope) (Value, error) {
	v, err := in.eval(e.operand, s)
	if err != nil {
		return nil, err
	}
	if e.op == "not" {
		return !truth(v), nil
	}
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		return nil, runtimef("'%s' does not work on %s", e.op, typeName(v))
	case e.op == "+" && isInt:
		return i, nil
	case e.op == "+":
		return f, nil
	case isInt:
		return in.arithmetic("-", int64(0), i)
	}
	return -f, nil
}

// evalCompare computes a chain: a < b < c compares each pair and stops at the first that fails.
func (in *interp) evalCompare(e *compareExpr, s *scope) (Value, error) {
	left, err := in.eval(e.first, s)
	if err != nil {
		return nil, err
	}
	for i, op := range e.ops {
		right, err := in.eval(e.rest[i], s)
		if err != nil {
			return nil, err
		}
		ok, err := in.compare(op, left, right)
		if !ok || err != nil {
			return false, err
		}
		left = right
	}
	return true, nil
}

func (in *interp) compare(op string, left, right Value) (bool, error) {
	switch op {
	case "==":
		return in.equal(left, right)
	case "!=":
		same, err := in.equal(left, right)
		return !same, err
	case "in":
		return in.holds(right, left)
	case "not in":
		found, err := in.holds(right, left)
		return !found, err
	}
	c, err := in.order(left, right)
	if err != nil {
		return false, err
	}
	switch op {
	case "<":
		return c < 0, nil
	case "<=":
		return c <= 0, nil
	case ">":
		return c > 0, nil
	}
	return c >= 0, nil
}

func (in *interp) evalTest(e *testExpr, s *scope) (Value, error) {
	operand, err := in.eval(e.operand, s)
	if err != nil {
		return nil, err
	}
	args, err := in.evalArgs(e.args, s)
	if err != nil {
		return nil, err
	}
	return in.test(e.name, operand, args.pos)
}

// filterChain applies the filters of a block to its text: the chain's innermost operand is nil.
func (in *interp) filterChain(e expr, text Value, s *scope) (Value, error) {
	f, ok := e.(*filterExpr)
	if !ok {
		return text, nil
	}
	if f.operand != nil {
		v, err := in.filterChain(f.operand, text, s)
		if err != nil {
			return nil, err
		}
		text = v
	}
	return in.applyFilter(f, text, s)
}

func (in *interp) applyFilter(e *filterExpr, operand Value, s *scope) (Value, error) {
	args, err := in.evalArgs(e.args, s)
	if err != nil {
		return nil, err
	}
	v, err := in.filter(e.name, operand, args)
	return v, place(e.at, err)
}
