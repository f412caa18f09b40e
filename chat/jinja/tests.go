package jinja

import "strings"

// testFunc answers "operand is name(args)".
type testFunc func(in *interp, v Value, args []Value) (bool, error)

// testTable holds the tests by name. It is filled once and only read afterwards.
var testTable = map[string]testFunc{
	"defined":   plain(func(v Value) bool { _, ok := v.(Undefined); return !ok }),
	"undefined": plain(func(v Value) bool { _, ok := v.(Undefined); return ok }),
	"none":      plain(func(v Value) bool { return v == nil }),
	"string":    plain(func(v Value) bool { _, ok := v.(string); return ok }),
	"mapping":   plain(func(v Value) bool { _, ok := v.(*Dict); return ok }),
	"boolean":   plain(func(v Value) bool { _, ok := v.(bool); return ok }),
	"true":      plain(func(v Value) bool { return v == true }),
	"false":     plain(func(v Value) bool { return v == false }),
	"integer":   plain(func(v Value) bool { _, ok := v.(int64); return ok || isBig(v) }),
	"float":     plain(func(v Value) bool { _, ok := v.(float64); return ok }),
	"number":    plain(func(v Value) bool { _, _, _, ok := number(v); return ok || isBig(v) }),
	"callable":  plain(func(v Value) bool { _, ok := v.(callable); return ok }),
	"iterable":  plain(func(v Value) bool { _, ok := length(v); return ok }),
	"sequence":  plain(func(v Value) bool { _, ok := length(v); return ok }),
	"upper":     plain(func(v Value) bool { s := str(v); return s == strings.ToUpper(s) && s != strings.ToLower(s) }),
	"lower":     plain(func(v Value) bool { s := str(v); return s == strings.ToLower(s) && s != strings.ToUpper(s) }),

	"odd":         remainder(func(n int64) bool { return n%2 != 0 }),
	"even":        remainder(func(n int64) bool { return n%2 == 0 }),
	"divisibleby": divisible,
	"sameas": withOperand(func(_ *interp, v, w Value) (bool, error) {
		return typeName(v) == typeName(w) && v == w, nil
	}),
	"in": withOperand(func(in *interp, v, w Value) (bool, error) { return in.holds(w, v) }),

	"eq": comparing("=="), "equalto": comparing("=="), "==": comparing("=="),
	"ne": comparing("!="), "!=": comparing("!="),
	"lt": comparing("<"), "lessthan": comparing("<"), "<": comparing("<"),
	"le": comparing("<="), "<=": comparing("<="),
	"gt": comparing(">"), "greaterthan": comparing(">"), ">": comparing(">"),
	"ge": comparing(">="), ">=": comparing(">="),
}

func (in *interp) test(name string, v Value, args []Value) (bool, error) {
	t, ok := testTable[name]
	if !ok {
		return false, runtimef("unknown test '%s'", name)
	}
	if err := in.touch(v); err != nil {
		return false, err
	}
	return t(in, v, args)
}

func isBig(v Value) bool {
	_, ok := v.(BigInt)
	return ok
}

func plain(f func(Value) bool) testFunc {
	return func(_ *interp, v Value, args []Value) (bool, error) {
		if len(args) > 0 {
			return false, runtimef("this test takes no argument")
		}
		return f(v), nil
	}
}

func withOperand(f func(in *interp, v, w Value) (bool, error)) testFunc {
	return func(in *interp, v Value, args []Value) (bool, error) {
		if len(args) != 1 {
			return false, runtimef("this test takes one argument, not %d", len(args))
		}
		return f(in, v, args[0])
	}
}

func comparing(op string) testFunc {
	return withOperand(func(in *interp, v, w Value) (bool, error) { return in.compare(op, v, w) })
}

func remainder(f func(int64) bool) testFunc {
	return func(_ *interp, v Value, _ []Value) (bool, error) {
		n, _, isInt, ok := number(v)
		if !ok || !isInt {
			return false, runtimef("this test needs an integer, not %s", typeName(v))
		}
		return f(n), nil
	}
}

func divisible(_ *interp, v Value, args []Value) (bool, error) {
	if len(args) != 1 {
		return false, runtimef("divisibleby takes one argument")
	}
	n, _, nInt, nOK := number(v)
	d, _, dInt, dOK := number(args[0])
	if !nOK || !dOK || !nInt || !dInt || d == 0 {
		return false, runtimef("divisibleby needs integers and a divisor that is not 0")
	}
	return n%d == 0, nil
}
