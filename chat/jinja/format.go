package jinja

import (
	"fmt"
	"strconv"
	"strings"
)

// maxFieldWidth bounds the width and precision a format may ask for.
const maxFieldWidth = 1000

// percentFormat is Python's "text %s" % value for the conversions s, r, d, i, x, X, o, f, e, g and %.
func (in *interp) percentFormat(format string, value Value) (Value, error) {
	args := []Value{value}
	if list, ok := value.(*List); ok && list.Tuple {
		args = list.Items
	}
	var b strings.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.WriteByte(format[i])
			continue
		}
		spec := i
		i++
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i == len(format) {
			return nil, runtimef("format ends inside a conversion")
		}
		if format[i] == '%' {
			b.WriteByte('%')
			continue
		}
		if len(args) == 0 {
			return nil, runtimef("format has more conversions than values")
		}
		text, err := convert(format[spec:i], format[i], args[0])
		if err != nil {
			return nil, err
		}
		args = args[1:]
		b.WriteString(text)
	}
	if len(args) > 0 {
		if _, isDict := value.(*Dict); !isDict {
			return nil, runtimef("format has fewer conversions than values")
		}
	}
	return in.newString(b.String())
}

// convert prints one value; flags is "%" with flags, width and precision.
func convert(flags string, verb byte, v Value) (string, error) {
	for _, part := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(part); err != nil || n > maxFieldWidth {
			return "", limitf("format width %s is more than %d", part, maxFieldWidth)
		}
	}
	i, f, isInt, ok := number(v)
	switch verb {
	case 's':
		return fmt.Sprintf(flags+"s", str(v)), nil
	case 'r':
		return fmt.Sprintf(flags+"s", repr(v)), nil
	case 'd', 'i', 'x', 'X', 'o':
		if !ok {
			break
		}
		if !isInt {
			i = int64(f)
		}
		if verb == 'i' {
			verb = 'd'
		}
		return fmt.Sprintf(flags+string(verb), i), nil
	case 'f', 'e', 'g':
		if ok {
			return fmt.Sprintf(flags+string(verb), f), nil
		}
	default:
		return "", fmt.Errorf("%w: format conversion %%%c", ErrUnsupported, verb)
	}
	return "", runtimef("format conversion %%%c needs a number, not %s", verb, typeName(v))
}

// formatString is str.format for the fields {}, {0} and {name}, without conversions.
func formatString(in *interp, s string, a *callArgs) (Value, error) {
	var b strings.Builder
	next := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c {
			b.WriteByte(c)
			i++
			continue
		}
		if c == '}' {
			return nil, runtimef("format: single '}'")
		}
		if c != '{' {
			b.WriteByte(c)
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			return nil, runtimef("format: '{' is not closed")
		}
		v, err := formatField(s[i+1:i+end], &next, a)
		if err != nil {
			return nil, err
		}
		i += end
		text := str(v)
		if err := in.charge(len(text)); err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	return in.newString(b.String())
}

func formatField(field string, next *int, a *callArgs) (Value, error) {
	if strings.ContainsAny(field, ":!.[") {
		return nil, fmt.Errorf("%w: format field {%s}", ErrUnsupported, field)
	}
	index, err := strconv.Atoi(field)
	if field == "" {
		index, err = *next, nil
		*next++
	}
	if err == nil {
		if index < 0 || index >= len(a.pos) {
			return nil, runtimef("format: no argument %d", index)
		}
		return a.pos[index], nil
	}
	for i, name := range a.names {
		if name == field {
			return a.vals[i], nil
		}
	}
	return nil, runtimef("format: no argument '%s'", field)
}
