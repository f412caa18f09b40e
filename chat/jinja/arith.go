package jinja

import (
	"math"
	"strings"

	"sparrow/internal/mark"
)

// arithmetic computes + - * / // % and **.
func (in *interp) arithmetic(op string, a, b Value) (Value, error) {
	if u, ok := a.(Undefined); ok {
		return nil, runtimef("%s is undefined", u.what)
	}
	if u, ok := b.(Undefined); ok {
		return nil, runtimef("%s is undefined", u.what)
	}
	ai, af, aInt, aOK := number(a)
	bi, bf, bInt, bOK := number(b)
	switch {
	case aOK && bOK && aInt && bInt:
		return intArithmetic(op, ai, bi)
	case aOK && bOK:
		return floatArithmetic(op, af, bf)
	}
	switch op {
	case "+":
		return in.join(a, b)
	case "*":
		if aOK && aInt {
			a, bi, bInt = b, ai, true
		}
		if bInt {
			if v, ok, err := in.repeat(a, bi); ok {
				return v, err
			}
		}
	case "%":
		if format, ok := asText(a); ok {
			return in.percentFormat(format, b)
		}
	}
	return nil, runtimef("'%s' does not work between %s and %s", op, typeName(a), typeName(b))
}

// join adds strings, lists or tuples.
func (in *interp) join(a, b Value) (Value, error) {
	switch a := a.(type) {
	case string, *mark.Text:
		if b, ok := b.(string); ok {
			if a, ok := a.(string); ok {
				return a + b, in.charge(len(a) + len(b))
			}
		}
		if _, ok := asText(b); ok {
			return in.newText(joined([]Value{a, b}))
		}
	case *List:
		if b, ok := b.(*List); ok && a.Tuple == b.Tuple {
			n := len(a.Items) + len(b.Items)
			if err := in.charge(valueBytes * n); err != nil {
				return nil, err
			}
			items := make([]Value, 0, n)
			items = append(append(items, a.Items...), b.Items...)
			return &List{Items: items, Tuple: a.Tuple}, nil
		}
	}
	return nil, runtimef("'+' does not work between %s and %s", typeName(a), typeName(b))
}

// repeat multiplies a string or a list; ok is false for other values.
func (in *interp) repeat(v Value, n int64) (out Value, ok bool, err error) {
	size := 0
	switch v := v.(type) {
	case string:
		size = len(v)
	case *mark.Text:
		size = len(v.String()) + valueBytes*len(v.Spans())
	case *List:
		size = valueBytes * len(v.Items)
	default:
		return nil, false, nil
	}
	n = max(n, 0)
	if size > 0 && n > int64(in.limits.Memory/size) {
		return nil, true, limitf("more than %d bytes of values", in.limits.Memory)
	}
	if size == 0 {
		n = min(n, 1)
	}
	if err := in.charge(size * int(n)); err != nil {
		return nil, true, err
	}
	if s, isText := v.(string); isText {
		return strings.Repeat(s, int(n)), true, nil
	}
	if t, isText := v.(*mark.Text); isText {
		var b mark.Builder
		for range n {
			b.Write(*t)
		}
		return textValue(b.Text()), true, nil
	}
	list := v.(*List)
	items := make([]Value, 0, len(list.Items)*int(n))
	for range n {
		items = append(items, list.Items...)
	}
	return &List{Items: items, Tuple: list.Tuple}, true, nil
}

func overflow(op string, a, b int64) error {
	return runtimef("%d %s %d does not fit 64 bits", a, op, b)
}

func intArithmetic(op string, a, b int64) (Value, error) {
	switch op {
	case "+":
		c := a + b
		if (c > a) != (b > 0) {
			if b != 0 {
				return nil, overflow(op, a, b)
			}
		}
		return c, nil
	case "-":
		c := a - b
		if b != 0 && (c < a) != (b > 0) {
			return nil, overflow(op, a, b)
		}
		return c, nil
	case "*":
		if a == 0 || b == 0 {
			return int64(0), nil
		}
		c := a * b
		if c/b != a || a == math.MinInt64 && b == -1 || b == math.MinInt64 && a == -1 {
			return nil, overflow(op, a, b)
		}
		return c, nil
	case "**":
		return intPower(a, b)
	}
	if b == 0 {
		return nil, runtimef("division by zero")
	}
	switch op {
	case "/":
		return float64(a) / float64(b), nil
	case "//", "%":
		if a == math.MinInt64 && b == -1 {
			return nil, overflow(op, a, b)
		}
		q, r := a/b, a%b
		if r != 0 && (r < 0) != (b < 0) { // Python rounds towards minus infinity
			q, r = q-1, r+b
		}
		if op == "//" {
			return q, nil
		}
		return r, nil
	}
	return nil, runtimef("unknown operator '%s'", op)
}

func intPower(a, b int64) (Value, error) {
	if b < 0 {
		if a == 0 {
			return nil, runtimef("0 cannot be raised to a negative power")
		}
		return math.Pow(float64(a), float64(b)), nil
	}
	if b > 64 && a != 0 && a != 1 && a != -1 {
		return nil, overflow("**", a, b)
	}
	if a == 0 || a == 1 || a == -1 {
		b = min(b, 2+b%2) // the power only depends on parity and on being zero
	}
	result := Value(int64(1))
	for range b {
		next, err := intArithmetic("*", result.(int64), a)
		if err != nil {
			return nil, overflow("**", a, b)
		}
		result = next
	}
	return result, nil
}

func floatArithmetic(op string, a, b float64) (Value, error) {
	switch op {
	case "+":
		return a + b, nil
	case "-":
		return a - b, nil
	case "*":
		return a * b, nil
	case "**":
		return math.Pow(a, b), nil
	}
	if b == 0 {
		return nil, runtimef("division by zero")
	}
	switch op {
	case "/":
		return a / b, nil
	case "//":
		return math.Floor(a / b), nil
	case "%":
		r := math.Mod(a, b)
		if r != 0 && (r < 0) != (b < 0) {
			r += b
		}
		return r, nil
	}
	return nil, runtimef("unknown operator '%s'", op)
}
