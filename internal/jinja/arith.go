package jinja

import (
	"math"
	"strings"

	"sparrow/internal/mark"
)

// arithmetic computes + - * / // % and **.
func arithmetic(m *meter, op string, a, b Value) Value {
	for _, v := range []Value{a, b} {
		if u, ok := v.(Undefined); ok {
			panic(runtimef("%s is undefined", u.what))
		}
	}
	ai, af, aInt, aOK := number(a)
	bi, bf, bInt, bOK := number(b)
	switch {
	case aInt && bInt:
		return intArithmetic(op, ai, bi)
	case aOK && bOK:
		return floatArithmetic(op, af, bf)
	}
	switch op {
	case "+":
		return join(m, a, b)
	case "*":
		if aInt {
			a, bi, bInt = b, ai, true
		}
		if bInt {
			if v, ok := repeat(m, a, bi); ok {
				return v
			}
		}
	case "%":
		if format, ok := asText(a); ok {
			return percentFormat(m, format, b)
		}
	}
	panic(runtimef("'%s' does not work between %s and %s", op, typeName(a), typeName(b)))
}

// join concatenates strings, lists or tuples.
func join(m *meter, a, b Value) Value {
	switch a := a.(type) {
	case string, *mark.Text:
		if b, ok := b.(string); ok {
			if a, ok := a.(string); ok {
				m.charge(len(a) + len(b))
				return a + b
			}
		}
		if _, ok := asText(b); ok {
			return m.newText(joined([]Value{a, b}))
		}
	case *List:
		if b, ok := b.(*List); ok && a.Tuple == b.Tuple {
			n := len(a.Items) + len(b.Items)
			m.charge(valueBytes * n)
			items := make([]Value, 0, n)
			items = append(append(items, a.Items...), b.Items...)
			return &List{Items: items, Tuple: a.Tuple}
		}
	}
	panic(runtimef("'+' does not work between %s and %s", typeName(a), typeName(b)))
}

// repeat repeats a string or a list; ok is false for other values.
func repeat(m *meter, v Value, n int64) (out Value, ok bool) {
	size := 0
	switch v := v.(type) {
	case string:
		size = len(v)
	case *mark.Text:
		size = len(v.String()) + valueBytes*len(v.Spans())
	case *List:
		size = valueBytes * len(v.Items)
	default:
		return nil, false
	}
	n = max(n, 0)
	if size > 0 && n > int64(m.limits.Memory/size) {
		panic(failure{limitf("more than %d bytes of values", m.limits.Memory)})
	}
	if size == 0 {
		n = min(n, 1)
	}
	m.charge(size * int(n))
	if s, isText := v.(string); isText {
		return strings.Repeat(s, int(n)), true
	}
	if t, isText := v.(*mark.Text); isText {
		var b mark.Builder
		for range n {
			b.Write(*t)
		}
		return textValue(b.Text()), true
	}
	list := v.(*List)
	items := make([]Value, 0, len(list.Items)*int(n))
	for range n {
		items = append(items, list.Items...)
	}
	return &List{Items: items, Tuple: list.Tuple}, true
}

func overflow(op string, a, b int64) failure {
	return runtimef("%d %s %d does not fit 64 bits", a, op, b)
}

func intArithmetic(op string, a, b int64) Value {
	switch op {
	case "+":
		c := a + b
		if b != 0 && (c > a) != (b > 0) {
			panic(overflow(op, a, b))
		}
		return c
	case "-":
		c := a - b
		if b != 0 && (c < a) != (b > 0) {
			panic(overflow(op, a, b))
		}
		return c
	case "*":
		if a == 0 || b == 0 {
			return int64(0)
		}
		c := a * b
		if c/b != a || a == math.MinInt64 && b == -1 || b == math.MinInt64 && a == -1 {
			panic(overflow(op, a, b))
		}
		return c
	case "**":
		return intPower(a, b)
	}
	if b == 0 {
		panic(runtimef("division by zero"))
	}
	switch op {
	case "/":
		return float64(a) / float64(b)
	case "//", "%":
		if a == math.MinInt64 && b == -1 {
			panic(overflow(op, a, b))
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) { // Python rounds quotients towards minus infinity
			q, r = q-1, r+b
		}
		if op == "//" {
			return q
		}
		return r
	}
	panic(runtimef("unknown operator '%s'", op))
}

func intPower(a, b int64) Value {
	if b < 0 {
		if a == 0 {
			panic(runtimef("0 cannot be raised to a negative power"))
		}
		return math.Pow(float64(a), float64(b))
	}
	if b > 64 && a != 0 && a != 1 && a != -1 {
		panic(overflow("**", a, b))
	}
	if a == 0 || a == 1 || a == -1 {
		b = min(b, 2+b%2) // for these bases the power depends only on whether b is 0, and whether it is odd
	}
	result := Value(int64(1))
	for range b {
		result = intArithmetic("*", result.(int64), a)
	}
	return result
}

func floatArithmetic(op string, a, b float64) Value {
	switch op {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "**":
		return math.Pow(a, b)
	}
	if b == 0 {
		panic(runtimef("division by zero"))
	}
	switch op {
	case "/":
		return a / b
	case "//":
		return math.Floor(a / b)
	case "%":
		r := math.Mod(a, b)
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return r
	}
	panic(runtimef("unknown operator '%s'", op))
}
