package jinja

import "strings"

// testFunc evaluates "operand is name(args)".
type testFunc func(m *meter, v Value, args []Value) bool

// testTable maps names to tests. It is read-only.
var testTable = map[string]testFunc{
	"defined":   plain(func(v Value) bool { _, ok := v.(Undefined); return !ok }),
	"undefined": plain(func(v Value) bool { _, ok := v.(Undefined); return ok }),
	"none":      plain(func(v Value) bool { return v == nil }),
	"string":    plain(func(v Value) bool { _, ok := asText(v); return ok }),
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
	"upper":     plain(func(v Value) bool { return inCase(v, strings.ToUpper) }),
	"lower":     plain(func(v Value) bool { return inCase(v, strings.ToLower) }),

	"odd":         remainder(func(n int64) bool { return n%2 != 0 }),
	"even":        remainder(func(n int64) bool { return n%2 == 0 }),
	"divisibleby": withOperand(divisible),
	"sameas": withOperand(func(_ *meter, v, w Value) bool {
		return typeName(v) == typeName(w) && unmarked(v) == unmarked(w)
	}),
	"in": withOperand(func(m *meter, v, w Value) bool { return holds(m, w, v) }),

	"eq": comparing("=="), "equalto": comparing("=="), "==": comparing("=="),
	"ne": comparing("!="), "!=": comparing("!="),
	"lt": comparing("<"), "lessthan": comparing("<"), "<": comparing("<"),
	"le": comparing("<="), "<=": comparing("<="),
	"gt": comparing(">"), "greaterthan": comparing(">"), ">": comparing(">"),
	"ge": comparing(">="), ">=": comparing(">="),
}

func testValue(m *meter, name string, v Value, args []Value) bool {
	t, ok := testTable[name]
	if !ok {
		panic(runtimef("unknown test '%s'", name))
	}
	m.touch(v)
	return t(m, v, args)
}

// inCase reports whether a value is a string with letters that change, a conversion to upper or lower case, does not
// alter.
func inCase(v Value, change func(string) string) bool {
	s, ok := asString(v)
	return ok && s == change(s) && strings.ToUpper(s) != strings.ToLower(s)
}

func isBig(v Value) bool {
	_, ok := v.(BigInt)
	return ok
}

func plain(f func(Value) bool) testFunc {
	return func(_ *meter, v Value, args []Value) bool {
		if len(args) > 0 {
			panic(runtimef("this test takes no argument"))
		}
		return f(v)
	}
}

func withOperand(f func(m *meter, v, w Value) bool) testFunc {
	return func(m *meter, v Value, args []Value) bool {
		if len(args) != 1 {
			panic(runtimef("this test takes one argument, not %d", len(args)))
		}
		return f(m, v, args[0])
	}
}

func comparing(op string) testFunc {
	return withOperand(func(m *meter, v, w Value) bool { return compare(m, op, v, w) })
}

func remainder(f func(int64) bool) testFunc {
	return func(_ *meter, v Value, _ []Value) bool { return f(intArg(v)) }
}

func divisible(_ *meter, v, w Value) bool {
	d := intArg(w)
	if d == 0 {
		panic(runtimef("division by zero"))
	}
	return intArg(v)%d == 0
}
