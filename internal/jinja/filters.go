package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// filterFunc evaluates "operand | name(args)".
type filterFunc = methodFunc[Value]

// filterTable maps names to filters. init fills it, because some filters use the table.
var filterTable map[string]filterFunc

func init() {
	filterTable = map[string]filterFunc{
		"abs":        absFilter,
		"capitalize": ofText("capitalize"),
		"count":      lengthFilter,
		"d":          takes(defaultFilter, "default_value", "boolean"),
		"default":    takes(defaultFilter, "default_value", "boolean"),
		"dictsort":   takes(dictsortFilter, "case_sensitive", "by", "reverse"),
		"e":          takes(escapeFilter),
		"escape":     takes(escapeFilter),
		"first":      edgeFilter(true),
		"float":      takes(floatFilter, "default"),
		"format": func(m *meter, v Value, a *callArgs) Value {
			return percentFormat(m, text(v), newTuple(a.pos...))
		},
		"indent":     takes(indentFilter, "width", "first", "blank"),
		"int":        takes(intFilter, "default", "base"),
		"items":      itemsFilter,
		"join":       takes(joinFilter, "d", "attribute"),
		"last":       edgeFilter(false),
		"length":     lengthFilter,
		"list":       listFilter,
		"lower":      ofText("lower"),
		"map":        mapFilter,
		"max":        extremeFilter(1),
		"min":        extremeFilter(-1),
		"reject":     selectFilter(false),
		"rejectattr": selectAttrFilter(false),
		"replace":    ofText("replace"),
		"reverse":    reverseFilter,
		"round":      takes(roundFilter, "precision", "method"),
		"safe":       func(_ *meter, v Value, _ *callArgs) Value { return v },
		"select":     selectFilter(true),
		"selectattr": selectAttrFilter(true),
		"sort":       takes(sortFilter, "reverse", "case_sensitive", "attribute"),
		"string":     takes(stringFilter),
		"sum":        takes(sumFilter, "attribute", "start"),
		"title":      takes(titleFilter),
		"tojson":     takes(tojsonFilter, "ensure_ascii", "indent", "separators", "sort_keys"),
		"trim":       ofText("strip"),
		"unique":     takes(uniqueFilter, "case_sensitive", "attribute"),
		"upper":      ofText("upper"),
	}
}

func filter(m *meter, name string, v Value, a *callArgs) Value {
	f, ok := filterTable[name]
	if !ok {
		panic(runtimef("unknown filter '%s'", name))
	}
	m.touch(v)
	a.fn = name
	return f(m, v, a)
}

// ofText returns a filter that applies a string method to the text of a value.
func ofText(method string) filterFunc {
	return func(m *meter, v Value, a *callArgs) Value { return stringMethods[method](m, m.printed(v), a) }
}

// stringFilter converts a value to text.
func stringFilter(m *meter, v Value, _ []Value) Value {
	return m.newText(text(v))
}

func escapeFilter(m *meter, v Value, _ []Value) Value {
	return m.newText(text(v).Map(htmlEscapes.Replace))
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// titleFilter capitalises each word; words end at spaces, hyphens and opening brackets.
func titleFilter(m *meter, v Value, _ []Value) Value {
	return m.newText(rewrite(text(v), func(s string) string {
		var b strings.Builder
		for s != "" {
			end := strings.IndexFunc(s, func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) })
			if end < 0 {
				end = len(s) - 1
			}
			_, size := utf8.DecodeRuneInString(s[end:])
			b.WriteString(capitalize(s[:end+size]))
			s = s[end+size:]
		}
		return b.String()
	}))
}

func lengthFilter(_ *meter, v Value, _ *callArgs) Value {
	n, ok := length(v)
	if !ok {
		panic(runtimef("%s has no length", typeName(v)))
	}
	return int64(n)
}

func defaultFilter(_ *meter, v Value, args []Value) Value {
	_, undefined := v.(Undefined)
	if !undefined && (!flag(args[1]) || truth(v)) {
		return v
	}
	return orElse(args[0], "")
}

func tojsonFilter(m *meter, v Value, args []Value) Value {
	style := jsonStyle{itemSep: ", ", keySep: ": ", maxLength: max(1, m.limits.Memory-m.memory)}
	style.ascii, style.sortKeys = flag(args[0]), flag(args[3])
	if given(args[1]) {
		style.pretty, style.itemSep, style.indent = true, ",", marginText(args[1])
	}
	if given(args[2]) {
		pair := unpackValue(args[2], 2)
		style.itemSep, style.keySep = textArg(pair[0]), textArg(pair[1])
	}
	return m.newText(dumps(v, style))
}

// marginText returns an indentation given as text or as a number of spaces.
func marginText(v Value) string {
	switch v := unmarked(v).(type) {
	case string:
		return v
	case int64:
		if v > maxFieldWidth {
			panic(failure{limitf("indentation of %d is more than %d", v, maxFieldWidth)})
		}
		return strings.Repeat(" ", int(max(v, 0)))
	}
	panic(runtimef("an indentation must be a number or a string, not %s", typeName(v)))
}

func indentFilter(m *meter, v Value, args []Value) Value {
	margin := marginText(orElse(args[0], int64(4)))
	body := m.printed(v)
	parts := lines(body)
	if len(parts) == 0 || endsLine(body.String()) {
		parts = append(parts, mark.Text{})
	}
	first, blank := flag(args[1]), flag(args[2])
	var b mark.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("\n")
		}
		if i == 0 && first || i > 0 && (part.String() != "" || blank) {
			b.WriteString(margin)
		}
		m.add(&b, part)
		m.charge(len(margin) + 1)
	}
	return textValue(b.Text())
}

func intFilter(_ *meter, v Value, args []Value) Value {
	other := orElse(args[0], int64(0))
	base := int64(10)
	if n, ok := args[1].(int64); ok && (n == 0 || n >= 2 && n <= 36) {
		base = n
	}
	if text, ok := asString(v); ok {
		text = strings.TrimFunc(text, isSpace)
		if n, err := strconv.ParseInt(trimBase(text, base), int(base), 64); err == nil {
			return n
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return other
		}
		v = f
	}
	i, f, isInt, ok := number(v)
	switch {
	case ok && isInt:
		return i
	case ok && math.Abs(f) < 1<<63:
		return int64(f)
	}
	return other
}

// trimBase removes the prefix of the given base, as Python's int() does: 0x, 0o or 0b.
func trimBase(text string, base int64) string {
	return strings.TrimPrefix(strings.ToLower(text), map[int64]string{16: "0x", 8: "0o", 2: "0b"}[base])
}

func floatFilter(_ *meter, v Value, args []Value) Value {
	if text, ok := asString(v); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(text, isSpace), 64); err == nil {
			return f
		}
	} else if _, f, _, ok := number(v); ok {
		return f
	}
	return orElse(args[0], 0.0)
}

func roundFilter(_ *meter, v Value, args []Value) Value {
	_, f, isInt, ok := number(v)
	if !ok {
		panic(runtimef("round needs a number, not %s", typeName(v)))
	}
	precision := int64(0)
	if n, ok := args[0].(int64); ok {
		precision = min(max(n, -300), 300)
	}
	method := textArg(orElse(args[1], "common"))
	scale := math.Pow(10, float64(precision))
	switch method {
	case "common":
		if isInt && precision >= 0 {
			return v
		}
		if precision < 0 {
			return math.RoundToEven(f*scale) / scale
		}
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
		if err != nil {
			panic(runtimef("cannot round %s", floatText(f)))
		}
		return r
	case "ceil":
		return math.Ceil(f*scale) / scale
	case "floor":
		return math.Floor(f*scale) / scale
	}
	panic(runtimef("round method must be common, ceil or floor, not %s", method))
}

func absFilter(_ *meter, v Value, _ *callArgs) Value {
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		panic(runtimef("abs needs a number, not %s", typeName(v)))
	case isInt && i >= 0:
		return i
	case isInt:
		return intArithmetic("-", 0, i)
	}
	return math.Abs(f)
}
