package jinja

import (
	"fmt"
	"strconv"
	"strings"

	"sparrow/internal/mark"
)

// maxFieldWidth is the maximum width and precision in a format.
const maxFieldWidth = 1000

// percentFormat implements Python's "text %s" % value for the conversions s, r, d, i, x, X, o, f, e, g and %.
func percentFormat(m *meter, pattern mark.Text, value Value) Value {
	format := pattern.String()
	args := []Value{value}
	if list, ok := value.(*List); ok && list.Tuple {
		args = list.Items
	}
	var b mark.Builder
	for i := 0; i < len(format); i++ {
		if format[i] != '%' {
			b.Write(pattern.Cut(i, i+1))
			continue
		}
		spec := i
		i++
		for i < len(format) && strings.IndexByte("-+ #0123456789.", format[i]) >= 0 {
			i++
		}
		if i == len(format) {
			panic(runtimef("format ends inside a conversion"))
		}
		if format[i] == '%' {
			b.Write(pattern.Cut(i, i+1))
			continue
		}
		if len(args) == 0 {
			panic(runtimef("format has more conversions than values"))
		}
		m.add(&b, convert(format[spec:i], format[i], args[0]))
		args = args[1:]
	}
	if len(args) > 0 {
		if _, isDict := value.(*Dict); !isDict {
			panic(runtimef("format has fewer conversions than values"))
		}
	}
	return m.newText(b.Text())
}

// convert formats one value with a conversion; flags is "%" with flags, width and precision.
func convert(flags string, verb byte, v Value) mark.Text {
	for _, part := range strings.FieldsFunc(flags, func(r rune) bool { return r < '0' || r > '9' }) {
		if n, err := strconv.Atoi(part); err != nil || n > maxFieldWidth {
			panic(failure{limitf("format width %s is more than %d", part, maxFieldWidth)})
		}
	}
	i, f, isInt, ok := number(v)
	switch verb {
	case 's':
		return padded(flags, text(v))
	case 'r':
		return padded(flags, repr(v))
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
		return mark.Plain(fmt.Sprintf(flags+string(verb), i))
	case 'f', 'e', 'g':
		if ok {
			return mark.Plain(fmt.Sprintf(flags+string(verb), f))
		}
	default:
		panic(failure{fmt.Errorf("%w: the format conversion %%%c", ErrUnsupported, verb)})
	}
	panic(runtimef("format conversion %%%c needs a number, not %s", verb, typeName(v)))
}

// padded returns a text in a field of the given width and precision.
func padded(flags string, t mark.Text) mark.Text {
	if flags == "%" {
		return t
	}
	return rewrite(t, func(s string) string { return fmt.Sprintf(flags+"s", s) })
}

// formatString implements str.format for the fields {}, {0} and {name}, without format specifications.
func formatString(m *meter, t mark.Text, a *callArgs) Value {
	s := t.String()
	var b mark.Builder
	next := 0
	for i := 0; i < len(s); i++ {
		c := s[i]
		if (c == '{' || c == '}') && i+1 < len(s) && s[i+1] == c {
			b.Write(t.Cut(i, i+1))
			i++
			continue
		}
		if c == '}' {
			panic(runtimef("format: single '}'"))
		}
		if c != '{' {
			b.Write(t.Cut(i, i+1))
			continue
		}
		end := strings.IndexByte(s[i:], '}')
		if end < 0 {
			panic(runtimef("format: '{' is not closed"))
		}
		m.add(&b, text(formatField(s[i+1:i+end], &next, a)))
		i += end
	}
	return m.newText(b.Text())
}

func formatField(field string, next *int, a *callArgs) Value {
	if strings.ContainsAny(field, ":!.[") {
		panic(failure{fmt.Errorf("%w: the format field {%s}", ErrUnsupported, field)})
	}
	index, err := strconv.Atoi(field)
	if field == "" {
		index, err = *next, nil
		*next++
	}
	if err == nil {
		if index < 0 || index >= len(a.pos) {
			panic(runtimef("format: no argument %d", index))
		}
		return a.pos[index]
	}
	for i, name := range a.names {
		if name == field {
			return a.vals[i]
		}
	}
	panic(runtimef("format: no argument '%s'", field))
}
