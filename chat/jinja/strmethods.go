package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type stringMethod = methodFunc[string]

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
	"removeprefix": cutMethod("removeprefix", strings.TrimPrefix),
	"removesuffix": cutMethod("removesuffix", strings.TrimSuffix),
	"find":         findMethod("find", strings.Index),
	"rfind":        findMethod("rfind", strings.LastIndex),
	"isdigit":      classMethod("isdigit", unicode.IsDigit),
	"isalpha":      classMethod("isalpha", unicode.IsLetter),
	"isspace":      classMethod("isspace", isSpace),
	"isalnum":      classMethod("isalnum", func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }),
	"split":        splitString,
	"rsplit":       rsplitString,
	"splitlines":   splitLinesMethod,
	"partition":    partitionMethod,
	"replace":      replaceString,
	"join":         joinString,
	"count":        countString,
	"format":       formatString,
}

// isSpace is Python's idea of white space.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

func textArg(fn string, v Value) (string, error) {
	s, ok := v.(string)
	if !ok {
		if isAbsent(v) {
			return "", runtimef("%s: an argument is missing", fn)
		}
		return "", runtimef("%s takes a string, not %s", fn, typeName(v))
	}
	return s, nil
}

func trimMethod(name string, trim func(string, func(rune) bool) string) stringMethod {
	return func(_ *interp, s string, a *callArgs) (Value, error) {
		args, err := a.bind(name, "chars")
		if err != nil {
			return nil, err
		}
		if isAbsent(args[0]) || args[0] == nil {
			return trim(s, isSpace), nil
		}
		chars, err := textArg(name, args[0])
		return trim(s, func(r rune) bool { return strings.ContainsRune(chars, r) }), err
	}
}

func mapMethod(name string, f func(string) string) stringMethod {
	return func(in *interp, s string, a *callArgs) (Value, error) {
		if _, err := a.bind(name); err != nil {
			return nil, err
		}
		return in.newString(f(s))
	}
}

func affixMethod(name string, has func(s, affix string) bool) stringMethod {
	return func(_ *interp, s string, a *callArgs) (Value, error) {
		args, err := a.bind(name, "affix")
		if err != nil {
			return nil, err
		}
		affixes := []Value{args[0]}
		if list, ok := args[0].(*List); ok && list.Tuple {
			affixes = list.Items
		}
		for _, v := range affixes {
			affix, err := textArg(name, v)
			if err != nil {
				return nil, err
			}
			if has(s, affix) {
				return true, nil
			}
		}
		return false, nil
	}
}

func cutMethod(name string, cut func(s, affix string) string) stringMethod {
	return func(_ *interp, s string, a *callArgs) (Value, error) {
		args, err := a.bind(name, "affix")
		if err != nil {
			return nil, err
		}
		affix, err := textArg(name, args[0])
		return cut(s, affix), err
	}
}

func findMethod(name string, find func(s, sub string) int) stringMethod {
	return func(_ *interp, s string, a *callArgs) (Value, error) {
		args, err := a.bind(name, "sub")
		if err != nil {
			return nil, err
		}
		sub, err := textArg(name, args[0])
		if err != nil {
			return nil, err
		}
		i := find(s, sub)
		if i < 0 {
			return int64(-1), nil
		}
		return int64(utf8.RuneCountInString(s[:i])), nil
	}
}

func classMethod(name string, is func(rune) bool) stringMethod {
	return func(_ *interp, s string, a *callArgs) (Value, error) {
		if _, err := a.bind(name); err != nil {
			return nil, err
		}
		for _, r := range s {
			if !is(r) {
				return false, nil
			}
		}
		return s != "", nil
	}
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

func (in *interp) strings(parts []string) (Value, error) {
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = p
	}
	return in.newList(items)
}

func splitString(in *interp, s string, a *callArgs) (Value, error) {
	sep, onSpace, most, err := splitArgs("split", a)
	if err != nil {
		return nil, err
	}
	if !onSpace {
		if most < 0 {
			return in.strings(strings.Split(s, sep))
		}
		return in.strings(strings.SplitN(s, sep, most+1))
	}
	var parts []string
	for s = strings.TrimLeftFunc(s, isSpace); s != ""; s = strings.TrimLeftFunc(s, isSpace) {
		if most >= 0 && len(parts) == most {
			parts = append(parts, s) // the rest keeps its own trailing space
			break
		}
		end := strings.IndexFunc(s, isSpace)
		if end < 0 {
			end = len(s)
		}
		parts = append(parts, s[:end])
		s = s[end:]
	}
	return in.strings(parts)
}

func rsplitString(in *interp, s string, a *callArgs) (Value, error) {
	sep, onSpace, most, err := splitArgs("rsplit", a)
	if err != nil {
		return nil, err
	}
	if most < 0 {
		return splitString(in, s, a)
	}
	var tail []string
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
		tail = append(tail, s[i+size:])
		s = s[:i]
	}
	parts := []string{s}
	if onSpace {
		if parts[0] = strings.TrimRightFunc(s, isSpace); strings.TrimFunc(s, isSpace) == "" {
			parts = nil
		}
	}
	for i := len(tail) - 1; i >= 0; i-- {
		parts = append(parts, tail[i])
	}
	return in.strings(parts)
}

// lines cuts a text at Python's line boundaries, without keeping them.
func lines(s string) []string {
	var out []string
	start := 0
	for i := 0; i < len(s); {
		r, size := utf8.DecodeRuneInString(s[i:])
		switch r {
		case '\n', '\r', '\v', '\f', 0x1c, 0x1d, 0x1e, 0x85, 0x2028, 0x2029:
			out = append(out, s[start:i])
			if r == '\r' && i+1 < len(s) && s[i+1] == '\n' {
				size = 2
			}
			start = i + size
		}
		i += size
	}
	if start < len(s) {
		out = append(out, s[start:])
	}
	return out
}

func splitLinesMethod(in *interp, s string, a *callArgs) (Value, error) {
	if _, err := a.bind("splitlines"); err != nil {
		return nil, err
	}
	return in.strings(lines(s))
}

func partitionMethod(_ *interp, s string, a *callArgs) (Value, error) {
	args, err := a.bind("partition", "sep")
	if err != nil {
		return nil, err
	}
	sep, err := textArg("partition", args[0])
	if err != nil {
		return nil, err
	}
	before, after, found := strings.Cut(s, sep)
	if !found {
		sep = ""
	}
	return newTuple(before, sep, after), nil
}

func replaceString(in *interp, s string, a *callArgs) (Value, error) {
	args, err := a.bind("replace", "old", "new", "count")
	if err != nil {
		return nil, err
	}
	from, err := textArg("replace", args[0])
	if err != nil {
		return nil, err
	}
	to, err := textArg("replace", args[1])
	if err != nil {
		return nil, err
	}
	count := -1
	if n, _, isInt, ok := number(args[2]); ok && isInt {
		count = int(max(-1, min(n, 1<<31)))
	}
	// The size is known before the text is made, so a short text cannot grow past the limit.
	hits := strings.Count(s, from)
	if count >= 0 {
		hits = min(hits, count)
	}
	if err := in.charge(len(s) + hits*max(0, len(to)-len(from))); err != nil {
		return nil, err
	}
	return strings.Replace(s, from, to, count), nil
}

func joinString(in *interp, s string, a *callArgs) (Value, error) {
	args, err := a.bind("join", "items")
	if err != nil {
		return nil, err
	}
	items, err := in.iterate(args[0])
	if err != nil {
		return nil, err
	}
	for _, item := range items {
		if _, err := textArg("join", item); err != nil {
			return nil, err
		}
	}
	return in.joinItems(items, s)
}

// joinItems prints items with sep between them.
func (in *interp) joinItems(items []Value, sep string) (Value, error) {
	var b strings.Builder
	for i, item := range items {
		text := str(item)
		if i > 0 {
			text = sep + text
		}
		if err := in.charge(len(text)); err != nil {
			return nil, err
		}
		b.WriteString(text)
	}
	return b.String(), nil
}

func countString(_ *interp, s string, a *callArgs) (Value, error) {
	args, err := a.bind("count", "sub")
	if err != nil {
		return nil, err
	}
	sub, err := textArg("count", args[0])
	return int64(strings.Count(s, sub)), err
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
