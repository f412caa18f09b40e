package jinja

import (
	"math"
	"strconv"
	"strings"
	"unicode/utf8"

	"sparrow/internal/mark"
)

// filterFunc computes "operand | name(args)".
type filterFunc = methodFunc[Value]

// filterTable holds the filters by name. It is filled once, by init, because some filters apply others.
var filterTable map[string]filterFunc

func init() {
	filterTable = map[string]filterFunc{
		"abs":        absFilter,
		"capitalize": textFilter(capitalize),
		"count":      lengthFilter,
		"d":          takes("default", defaultFilter, "default_value", "boolean"),
		"default":    takes("default", defaultFilter, "default_value", "boolean"),
		"dictsort":   takes("dictsort", dictsortFilter, "case_sensitive", "by", "reverse"),
		"e":          takes("escape", escapeFilter),
		"escape":     takes("escape", escapeFilter),
		"first":      firstFilter,
		"float":      takes("float", floatFilter, "default"),
		"format": func(in *interp, v Value, a *callArgs) (Value, error) {
			return in.percentFormat(text(v), newTuple(a.pos...))
		},
		"indent":     takes("indent", indentFilter, "width", "first", "blank"),
		"int":        takes("int", intFilter, "default", "base"),
		"items":      itemsFilter,
		"join":       takes("join", joinFilter, "d", "attribute"),
		"last":       lastFilter,
		"length":     lengthFilter,
		"list":       listFilter,
		"lower":      textFilter(strings.ToLower),
		"map":        mapFilter,
		"max":        extremeFilter(1),
		"min":        extremeFilter(-1),
		"reject":     selectFilter(false),
		"rejectattr": selectAttrFilter(false),
		"replace": func(in *interp, v Value, a *callArgs) (Value, error) {
			return stringMethods["replace"](in, text(v), a)
		},
		"reverse":    reverseFilter,
		"round":      takes("round", roundFilter, "precision", "method"),
		"safe":       func(_ *interp, v Value, _ *callArgs) (Value, error) { return v, nil },
		"select":     selectFilter(true),
		"selectattr": selectAttrFilter(true),
		"sort":       takes("sort", sortFilter, "reverse", "case_sensitive", "attribute"),
		"string":     takes("string", stringFilter),
		"sum":        takes("sum", sumFilter, "attribute", "start"),
		"title":      textFilter(titleFilter),
		"tojson":     takes("tojson", tojsonFilter, "ensure_ascii", "indent", "separators", "sort_keys"),
		"trim":       trimFilter,
		"unique":     takes("unique", uniqueFilter, "case_sensitive", "attribute"),
		"upper":      textFilter(strings.ToUpper),
	}
}

func (in *interp) filter(name string, v Value, a *callArgs) (Value, error) {
	f, ok := filterTable[name]
	if !ok {
		return nil, runtimef("unknown filter '%s'", name)
	}
	if err := in.touch(v); err != nil {
		return nil, err
	}
	return f(in, v, a)
}

func textFilter(f func(string) string) filterFunc {
	return takes("this filter", func(in *interp, v Value, _ []Value) (Value, error) {
		return in.newText(rewrite(text(v), f))
	})
}

// stringFilter prints a value.
func stringFilter(in *interp, v Value, _ []Value) (Value, error) {
	return in.newText(text(v))
}

func escapeFilter(in *interp, v Value, _ []Value) (Value, error) {
	return in.newText(text(v).Map(htmlEscapes.Replace))
}

var htmlEscapes = strings.NewReplacer("&", "&amp;", "<", "&lt;", ">", "&gt;", `"`, "&#34;", "'", "&#39;")

// titleFilter starts each word with a capital; words end at spaces, hyphens and opening brackets.
func titleFilter(s string) string {
	var b strings.Builder
	for s != "" {
		end := strings.IndexFunc(s, func(r rune) bool { return isSpace(r) || strings.ContainsRune("-({[<", r) })
		if end < 0 {
			end = len(s)
		}
		b.WriteString(capitalize(s[:end]))
		s = s[end:]
		if s != "" {
			_, size := utf8.DecodeRuneInString(s)
			b.WriteString(s[:size])
			s = s[size:]
		}
	}
	return b.String()
}

func trimFilter(in *interp, v Value, a *callArgs) (Value, error) {
	return stringMethods["strip"](in, text(v), a)
}

func lengthFilter(_ *interp, v Value, _ *callArgs) (Value, error) {
	n, ok := length(v)
	if !ok {
		return nil, runtimef("%s has no length", typeName(v))
	}
	return int64(n), nil
}

func defaultFilter(_ *interp, v Value, args []Value) (Value, error) {
	_, undefined := v.(Undefined)
	if !undefined && (isAbsent(args[1]) || !truth(args[1]) || truth(v)) {
		return v, nil
	}
	if isAbsent(args[0]) {
		return "", nil
	}
	return args[0], nil
}

func tojsonFilter(in *interp, v Value, args []Value) (Value, error) {
	style := jsonStyle{itemSep: ", ", keySep: ": ", maxLength: in.limits.Memory - in.memory}
	style.ascii = flag(args[0])
	style.sortKeys = flag(args[3])
	if !isAbsent(args[1]) && args[1] != nil {
		margin, err := marginText(args[1])
		if err != nil {
			return nil, err
		}
		style.pretty, style.itemSep, style.indent = true, ",", margin
	}
	if !isAbsent(args[2]) && args[2] != nil {
		pair, err := unpackValue(args[2], 2)
		if err != nil {
			return nil, err
		}
		style.itemSep, style.keySep = str(pair[0]), str(pair[1])
	}
	text, err := dumps(v, style)
	if err != nil {
		return nil, err
	}
	return in.newText(text)
}

// marginText is an indentation given as text or as a number of spaces.
func marginText(v Value) (string, error) {
	switch v := unmarked(v).(type) {
	case string:
		return v, nil
	case int64:
		if v > maxFieldWidth {
			return "", limitf("indentation of %d is more than %d", v, maxFieldWidth)
		}
		return strings.Repeat(" ", int(max(v, 0))), nil
	}
	return "", runtimef("an indentation must be a number or a string, not %s", typeName(v))
}

func indentFilter(in *interp, v Value, args []Value) (Value, error) {
	margin := "    "
	if !isAbsent(args[0]) {
		var err error
		if margin, err = marginText(args[0]); err != nil {
			return nil, err
		}
	}
	parts := lines(text(v))
	if len(parts) == 0 || endsLine(str(v)) {
		parts = append(parts, mark.Text{})
	}
	blank := flag(args[2])
	first := flag(args[1])
	var b mark.Builder
	for i, part := range parts {
		if i > 0 {
			b.WriteString("\n")
		}
		if i == 0 && first || i > 0 && (part.String() != "" || blank) {
			b.WriteString(margin)
		}
		if err := in.add(&b, part); err != nil {
			return nil, err
		}
		if err := in.charge(len(margin) + 1); err != nil {
			return nil, err
		}
	}
	return textValue(b.Text()), nil
}

func intFilter(_ *interp, v Value, args []Value) (Value, error) {
	if isAbsent(args[0]) {
		args[0] = int64(0)
	}
	base := int64(10)
	if n, ok := args[1].(int64); ok && (n == 0 || n >= 2 && n <= 36) {
		base = n
	}
	if text, ok := asString(v); ok {
		text = strings.TrimFunc(text, isSpace)
		if base == 10 || base == 0 {
			if n, err := strconv.ParseInt(text, int(base), 64); err == nil {
				return n, nil
			}
		} else if n, err := strconv.ParseInt(trimBase(text, base), int(base), 64); err == nil {
			return n, nil
		}
		f, err := strconv.ParseFloat(text, 64)
		if err != nil {
			return args[0], nil
		}
		v = f
	}
	i, f, isInt, ok := number(v)
	switch {
	case ok && isInt:
		return i, nil
	case ok && math.Abs(f) < 1<<63:
		return int64(f), nil
	}
	return args[0], nil
}

// trimBase drops the prefix Python allows in front of numbers of that base.
func trimBase(text string, base int64) string {
	prefix := map[int64]string{16: "0x", 8: "0o", 2: "0b"}[base]
	return strings.TrimPrefix(strings.ToLower(text), prefix)
}

func floatFilter(_ *interp, v Value, args []Value) (Value, error) {
	if text, ok := asString(v); ok {
		if f, err := strconv.ParseFloat(strings.TrimFunc(text, isSpace), 64); err == nil {
			return f, nil
		}
	} else if _, f, _, ok := number(v); ok {
		return f, nil
	}
	if isAbsent(args[0]) {
		return 0.0, nil
	}
	return args[0], nil
}

func roundFilter(_ *interp, v Value, args []Value) (Value, error) {
	_, f, isInt, ok := number(v)
	if !ok {
		return nil, runtimef("round needs a number, not %s", typeName(v))
	}
	precision := int64(0)
	if n, ok := args[0].(int64); ok {
		precision = min(max(n, -300), 300)
	}
	method := "common"
	if s, ok := asString(args[1]); ok {
		method = s
	}
	scale := math.Pow(10, float64(precision))
	switch method {
	case "common":
		if isInt && precision >= 0 {
			return v, nil
		}
		if precision < 0 {
			return math.RoundToEven(f*scale) / scale, nil
		}
		r, err := strconv.ParseFloat(strconv.FormatFloat(f, 'f', int(precision), 64), 64)
		if err != nil {
			return nil, runtimef("cannot round %s", floatText(f))
		}
		return r, nil
	case "ceil":
		return math.Ceil(f*scale) / scale, nil
	case "floor":
		return math.Floor(f*scale) / scale, nil
	}
	return nil, runtimef("round method must be common, ceil or floor, not %s", method)
}

func absFilter(_ *interp, v Value, _ *callArgs) (Value, error) {
	i, f, isInt, ok := number(v)
	switch {
	case !ok:
		return nil, runtimef("abs needs a number, not %s", typeName(v))
	case isInt && i >= 0:
		return i, nil
	case isInt:
		return intArithmetic("-", 0, i)
	}
	return math.Abs(f), nil
}
