package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// maxDataDepth is the maximum depth of values that are printed, compared or encoded. Only cyclic lists and hostile JSON
// exceed it.
const maxDataDepth = 200

// maxPrinted is the maximum number of bytes of the printed form of one list or mapping, for the same reason. The rest
// of the text is omitted.
const maxPrinted = 4 << 20

// str returns Python's str(v).
func str(v Value) string {
	if s, ok := v.(string); ok {
		return s
	}
	return text(v).String()
}

// text returns Python's str(v) with marks.
func text(v Value) mark.Text {
	if t, ok := asText(v); ok {
		return t
	}
	if _, ok := v.(Undefined); ok {
		return mark.Text{}
	}
	return repr(v)
}

// repr returns Python's repr(v).
func repr(v Value) mark.Text {
	var b mark.Builder
	writeRepr(&b, v, 0)
	return b.Text()
}

func writeRepr(b *mark.Builder, v Value, depth int) {
	if depth > maxDataDepth || b.Len() > maxPrinted {
		b.WriteString("...")
		return
	}
	switch v := v.(type) {
	case nil:
		b.WriteString("None")
	case bool:
		if v {
			b.WriteString("True")
		} else {
			b.WriteString("False")
		}
	case int64:
		b.WriteString(strconv.FormatInt(v, 10))
	case BigInt:
		b.WriteString(string(v))
	case float64:
		b.WriteString(floatText(v))
	case string:
		writeQuoted(b, mark.Plain(v))
	case *mark.Text:
		writeQuoted(b, *v)
	case tupleKey:
		b.WriteString(string(v))
	case *List:
		open, end := "[", "]"
		if v.Tuple {
			open, end = "(", ")"
			if len(v.Items) == 1 {
				end = ",)"
			}
		}
		b.WriteString(open)
		for i, item := range v.Items {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, item, depth+1)
		}
		b.WriteString(end)
	case *Dict:
		b.WriteString("{")
		for i := range v.keys {
			if i > 0 {
				b.WriteString(", ")
			}
			writeRepr(b, v.keys[i], depth+1)
			b.WriteString(": ")
			writeRepr(b, v.vals[i], depth+1)
		}
		b.WriteString("}")
	case Undefined:
		b.WriteString("Undefined")
	case *namespace:
		b.WriteString("<Namespace>")
	default:
		b.WriteString("<function>")
	}
}

// floatText returns Python's repr of a float: the fewest digits that give the same float, always with a point or an
// exponent.
func floatText(f float64) string {
	switch {
	case math.IsInf(f, 1):
		return "inf"
	case math.IsInf(f, -1):
		return "-inf"
	case math.IsNaN(f):
		return "nan"
	}
	sci := strconv.FormatFloat(f, 'e', -1, 64)
	exponent, _ := strconv.Atoi(sci[strings.IndexByte(sci, 'e')+1:])
	if exponent < -4 || exponent >= 16 {
		return sci
	}
	s := strconv.FormatFloat(f, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// writeQuoted writes Python's repr of a string.
func writeQuoted(b *mark.Builder, t mark.Text) {
	quote := "'"
	if s := t.String(); strings.Contains(s, "'") && !strings.Contains(s, "\"") {
		quote = `"`
	}
	b.WriteString(quote)
	b.Write(t.Map(func(s string) string { return escapeQuoted(s, rune(quote[0])) }))
	b.WriteString(quote)
}

// escapeQuoted returns the text between the quotes of Python's repr of a string.
func escapeQuoted(s string, quote rune) string {
	var b strings.Builder
	for _, r := range s {
		switch {
		case r == quote || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\r':
			b.WriteString(`\r`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < ' ' || r == 0x7f:
			b.WriteString(`\x` + hex(r, 2))
		case r != ' ' && !unicode.IsPrint(r):
			switch {
			case r < 0x100:
				b.WriteString(`\x` + hex(r, 2))
			case r < 0x10000:
				b.WriteString(`\u` + hex(r, 4))
			default:
				b.WriteString(`\U` + hex(r, 8))
			}
		default:
			b.WriteRune(r)
		}
	}
	return b.String()
}

func hex(r rune, digits int) string {
	s := strconv.FormatInt(int64(r), 16)
	return strings.Repeat("0", max(0, digits-len(s))) + s
}

// length returns Python's len(v); ok is false for values without a length.
func length(v Value) (n int, ok bool) {
	switch v := unmarked(v).(type) {
	case string:
		return utf8.RuneCountInString(v), true
	case *List:
		return len(v.Items), true
	case *Dict:
		return v.Len(), true
	case Undefined:
		return 0, true
	}
	return 0, false
}
