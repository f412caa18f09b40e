package jinja

import (
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"

	"sparrow/internal/mark"
)

type stringMethod = methodFunc[mark.Text]

var stringMethods = map[string]stringMethod{
	"strip":        trimMethod("strip", strings.TrimFunc),
	"lstrip":       trimMethod("lstrip", strings.TrimLeftFunc),
	"rstrip":       trimMethod("rstrip", strings.TrimRightFunc),
	"upper":        mapMethod("upper", strings.ToUpper),
	"lower":        mapMethod("lower", strings.ToLower),
	"title":        mapMethod("title", titleWords),
	"capitalize":   mapMethod("capitalize", capitalize),
	"startswith":   affixMethod("startswith", strings.HasPrefix),
	"endswith":     affixMethod("endswith", strings.HasSuffix),
	"removeprefix": cutMethod("removeprefix", afterPrefix),
	"removesuffix": cutMethod("removesuffix", beforeSuffix),
	"find":         findMethod("find", strings.Index),
	"rfind":        findMethod("rfind", strings.LastIndex),
	"isdigit":      classMethod("isdigit", unicode.IsDigit),
	"isalpha":      classMethod("isalpha", unicode.IsLetter),
	"isspace":      classMethod("isspace", isSpace),
	"isalnum":      classMethod("isalnum", func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }),
	"split":        splitString,
	"rsplit":       rsplitString,
	"splitlines":   takes("splitlines", splitLinesMethod),
	"partition":    takes("partition", partitionMethod, "sep"),
	"replace":      takes("replace", replaceString, "old", "new", "count"),
	"join":         takes("join", joinString, "items"),
	"count":        takes("count", countString, "sub"),
	"format":       formatString,
}

// isSpace is Python's idea of white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func textArg(fn string, v Value) (string, error) {
	s, ok := asString(v)
	if !ok {
		if isAbsent(v) {
			return "", runtimef("%s: an argument is missing", fn)
		}
		return "", runtimef("%s takes a string, not %s", fn, typeName(v))
	}
	return s, nil
}

func trimMethod(name string, trim func(string, func(rune) bool) string) stringMethod {
	return takes(name, func(_ *interp, t mark.Text, args []Value) (Value, error) {
		if isAbsent(args[0]) || args[0] == nil {
			return textValue(trimmed(t, trim, isSpace)), nil
		}
		chars, err := textArg(name, args[0])
		is := func(r rune) bool { return strings.ContainsRune(chars, r) }
		return textValue(trimmed(t, trim, is)), err
	}, "chars")
}

func mapMethod(name string, f func(string) string) stringMethod {
	return takes(name, func(in *interp, t mark.Text, _ []Value) (Value, error) {
		return in.newText(rewrite(t, f))
	})
}

func affixMethod(name string, has func(s, affix string) bool) stringMethod {
	return takes(name, func(_ *interp, t mark.Text, args []Value) (Value, error) {
		affixes := []Value{args[0]}
		if list, ok := args[0].(*List); ok && list.Tuple {
			affixes = list.Items
		}
		for _, v := range affixes {
			affix, err := textArg(name, v)
			if err != nil {
				return nil, err
			}
			if has(t.String(), affix) {
				return true, nil
			}
		}
		return false, nil
	}, "affix")
}

func cutMethod(name string, cut func(s, affix string) (from, to int)) stringMethod {
	return takes(name, func(_ *interp, t mark.Text, args []Value) (Value, error) {
		affix, err := textArg(name, args[0])
		if err != nil {
			return nil, err
		}
		from, to := cut(t.String(), affix)
		return textValue(t.Cut(from, to)), nil
	}, "affix")
}

func afterPrefix(s, affix string) (from, to int) {
	return len(s) - len(strings.TrimPrefix(s, affix)), len(s)
}

func beforeSuffix(s, affix string) (from, to int) { return 0, len(strings.TrimSuffix(s, affix)) }

func findMethod(name string, find func(s, sub string) int) stringMethod {
	return takes(name, func(_ *interp, t mark.Text, args []Value) (Value, error) {
		s := t.String()
		sub, err := textArg(name, args[0])
		if err != nil {
			return nil, err
		}
		i := find(s, sub)
		if i < 0 {
			return int64(-1), nil
		}
		return int64(utf8.RuneCountInString(s[:i])), nil
	}, "sub")
}

func classMethod(name string, is func(rune) bool) stringMethod {
	return takes(name, func(_ *interp, t mark.Text, _ []Value) (Value, error) {
		s := t.String()
		for _, r := range s {
			if !is(r) {
				return false, nil
			}
		}
		return s != "", nil
	})
}

// splitArgs reads the arguments of split and rsplit: white space when sep is none, all parts when max is negative.
func splitArgs(name string, a *callArgs) (sep string, onSpace bool, most int, err error) {
	args, err := a.bind(name, "sep", "maxsplit")
	if err != nil {
		return "", false, 0, err
	}
	most = -1
	if !isAbsent(args[1]) {
		n, _, isInt, ok := number(args[1])
		if !ok || !isInt {
			return "", false, 0, runtimef("%s: maxsplit must be an integer", name)
		}
		most = int(max(-1, min(n, 1<<31)))
	}
	if isAbsent(args[0]) || args[0] == nil {
		return "", true, most, nil
	}
	if sep, err = textArg(name, args[0]); err == nil && sep == "" {
		err = runtimef("%s: the separator is empty", name)
	}
	return sep, false, most, err
}

// texts is a list of strings.
func (in *interp) texts(parts []mark.Text) (Value, error) {
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = textValue(p)
		if err := in.charge(valueBytes * len(p.Spans())); err != nil {
			return nil, err
		}
	}
	return in.newList(items)
}

// between are the pieces of t around cuts, which are ascending.
func between(t mark.Text, cuts []mark.Span) []mark.Text {
	out := make([]mark.Text, 0, len(cuts)+1)
	at := 0
	for _, c := range cuts {
		out = append(out, t.Cut(at, c.Start))
		at = c.End
	}
	return append(out, t.Cut(at, len(t.String())))
}

// occurrences are the first places of sep in s, at most most of them unless most is negative.
func occurrences(s, sep string, most int) []mark.Span {
	var out []mark.Span
	for at := 0; most < 0 || len(out) < most; {
		i := strings.Index(s[at:], sep)
		if i < 0 {
			break
		}
		out = append(out, mark.Span{Start: at + i, End: at + i + len(sep)})
		at += i + len(sep)
	}
	return out
}

func splitString(in *interp, t mark.Text, a *callArgs) (Value, error) {
	sep, onSpace, most, err := splitArgs("split", a)
	if err != nil {
		return nil, err
	}
	s := t.String()
	if !onSpace {
		return in.texts(between(t, occurrences(s, sep, most)))
	}
	var parts []mark.Text
	space := func(from int) int { return len(s) - len(strings.TrimLeftFunc(s[from:], isSpace)) }
	for at := space(0); at < len(s); at = space(at) {
		if most >= 0 && len(parts) == most {
			parts = append(parts, t.Cut(at, len(s))) // the rest keeps its own trailing space
			break
		}
		end := strings.IndexFunc(s[at:], isSpace)
		if end < 0 {
			end = len(s) - at
		}
		parts = append(parts, t.Cut(at, at+end))
		at += end
	}
	return in.texts(parts)
}

func rsplitString(in *interp, t mark.Text, a *callArgs) (Value, error) {
	sep, onSpace, most, err := splitArgs("rsplit", a)
	if err != nil {
		return nil, err
	}
	if most < 0 {
		return splitString(in, t, a)
	}
	s := t.String()
	var tail []mark.Text
	for len(tail) < most {
		var i, size int
		if onSpace {
			s = strings.TrimRightFunc(s, isSpace)
			i = strings.LastIndexFunc(s, isSpace)
			if i >= 0 {
				_, size = utf8.DecodeRuneInString(s[i:])
			}
		} else {
			i, size = strings.LastIndex(s, sep), len(sep)
		}
		if i < 0 {
			break
		}
		tail = append(tail, t.Cut(i+size, len(s)))
		s = s[:i]
	}
	parts := []mark.Text{t.Cut(0, len(s))}
	if onSpace {
		if parts[0] = t.Cut(0, len(strings.TrimRightFunc(s, isSpace))); strings.TrimFunc(s, isSpace) == "" {
			parts = nil
		}
	}
	slices.Reverse(tail)
	return in.texts(append(parts, tail...))
}

// lines cuts a text at Python's line boundaries, without keeping them.
func lines(t mark.Text) []mark.Text {
	var out []mark.Text
	s := t.String()
	start := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		if isLineEnd(r) {
			out = append(out, t.Cut(start, i))
			if r == '\r' && i+1 < len(s) && s[i+1] == '\n' {
				size = 2
			}
			start = i + size
		}
		i += size
	}
	if start < len(s) {
		out = append(out, t.Cut(start, len(s)))
	}
	return out
}

func isLineEnd(r rune) bool {
	switch r {
	case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
		return true
	}
	return false
}

// endsLine says that a text ends with the end of a line, whatever follows: \r may be half of one.
func endsLine(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return r != '\r' && isLineEnd(r)
}

func splitLinesMethod(in *interp, t mark.Text, _ []Value) (Value, error) {
	return in.texts(lines(t))
}

func partitionMethod(_ *interp, t mark.Text, args []Value) (Value, error) {
	sep, err := textArg("partition", args[0])
	if err != nil {
		return nil, err
	}
	s := t.String()
	i := strings.Index(s, sep)
	if i < 0 {
		return newTuple(textValue(t), "", ""), nil
	}
	return newTuple(textValue(t.Cut(0, i)), textValue(t.Cut(i, i+len(sep))), textValue(t.Cut(i+len(sep), len(s)))), nil
}

func replaceString(in *interp, t mark.Text, args []Value) (Value, error) {
	from, err := textArg("replace", args[0])
	if err != nil {
		return nil, err
	}
	if _, err = textArg("replace", args[1]); err != nil {
		return nil, err
	}
	to := text(args[1])
	count := -1
	if n, _, isInt, ok := number(args[2]); ok && isInt {
		count = int(max(-1, min(n, 1<<31)))
	}
	// The size is known before the text is made, so a short text cannot grow past the limit.
	s := t.String()
	hits := strings.Count(s, from)
	if count >= 0 {
		hits = min(hits, count)
	}
	size := len(s) + hits*max(0, len(to.String())-len(from)) + valueBytes*(len(t.Spans())+hits*len(to.Spans()))
	if err := in.charge(size); err != nil {
		return nil, err
	}
	if len(t.Spans()) == 0 && len(to.Spans()) == 0 || from == "" {
		return textValue(rewrite(mixed(t, to), func(string) string {
			return strings.Replace(s, from, to.String(), count)
		})), nil
	}
	var b mark.Builder
	for i, piece := range between(t, occurrences(s, from, count)) {
		if i > 0 {
			b.Write(to)
		}
		b.Write(piece)
	}
	return textValue(b.Text()), nil
}

// mixed has marks if one of its parts has.
func mixed(a, b mark.Text) mark.Text {
	if len(a.Spans()) > 0 {
		return a
	}
	return b
}

func joinString(in *interp, sep mark.Text, args []Value) (Value, error) {
	items, err := in.iterate(args[0])
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if _, err := textArg("join", item); err != nil {
			return nil, err
		}
	}
	return in.joinItems(items, sep)
}

// joinItems prints items with sep between them.
func (in *interp) joinItems(items []Value, sep mark.Text) (Value, error) {
	var b mark.Builder
	for i, item := range items {
		if i > 0 {
			if err := in.add(&b, sep); err != nil {
				return nil, err
			}
		}
		if err := in.add(&b, text(item)); err != nil {
			return nil, err
		}
	}
	return textValue(b.Text()), nil
}

func countString(_ *interp, t mark.Text, args []Value) (Value, error) {
	sub, err := textArg("count", args[0])
	return int64(strings.Count(t.String(), sub)), err
}

// titleWords is str.title: every letter after a non-letter is upper case, the others lower case.
func titleWords(s string) string {
	inside := false
	return strings.Map(func(r rune) rune {
		was := inside
		if inside = unicode.IsLetter(r); !inside {
			return r
		}
		if was {
			return unicode.ToLower(r)
		}
		return unicode.ToTitle(r)
	}, s)
}

func capitalize(s string) string {
	r, size := utf8.DecodeRuneInString(s)
	if size == 0 {
		return s
	}
	return string(unicode.ToTitle(r)) + strings.ToLower(s[size:])
}
