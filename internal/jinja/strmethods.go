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
	"strip":        trimMethod(true, true),
	"lstrip":       trimMethod(true, false),
	"rstrip":       trimMethod(false, true),
	"upper":        mapMethod(strings.ToUpper),
	"lower":        mapMethod(strings.ToLower),
	"title":        mapMethod(titleWords),
	"capitalize":   mapMethod(capitalize),
	"startswith":   affixMethod(strings.HasPrefix),
	"endswith":     affixMethod(strings.HasSuffix),
	"removeprefix": cutMethod(afterPrefix),
	"removesuffix": cutMethod(beforeSuffix),
	"find":         findMethod(strings.Index),
	"rfind":        findMethod(strings.LastIndex),
	"isdigit":      classMethod(unicode.IsDigit),
	"isalpha":      classMethod(unicode.IsLetter),
	"isspace":      classMethod(isSpace),
	"isalnum":      classMethod(func(r rune) bool { return unicode.IsLetter(r) || unicode.IsDigit(r) }),
	"split":        splitMethod(false),
	"rsplit":       splitMethod(true),
	"splitlines":   takes(func(m *meter, t mark.Text, _ []Value) Value { return m.texts(lines(t)) }),
	"partition":    takes(partitionMethod, "sep"),
	"replace":      takes(replaceString, "old", "new", "count"),
	"join":         takes(joinString, "items"),
	"count":        takes(countString, "sub"),
	"format":       formatString,
}

// isSpace reports whether Python's str.isspace is true for r.
func isSpace(r rune) bool { return unicode.IsSpace(r) || r >= 0x1c && r <= 0x1f }

// trimMethod returns strip, lstrip or rstrip, which remove white space or the given characters.
func trimMethod(left, right bool) stringMethod {
	return takes(func(_ *meter, t mark.Text, args []Value) Value {
		drop := isSpace
		if given(args[0]) {
			chars := textArg(args[0])
			drop = func(r rune) bool { return strings.ContainsRune(chars, r) }
		}
		s := t.String()
		from, to := 0, len(s)
		if left {
			from = to - len(strings.TrimLeftFunc(s, drop))
		}
		if right {
			to = from + len(strings.TrimRightFunc(s[from:], drop))
		}
		return textValue(t.Cut(from, to))
	}, "chars")
}

func mapMethod(f func(string) string) stringMethod {
	return takes(func(m *meter, t mark.Text, _ []Value) Value {
		return m.newText(rewrite(t, f))
	})
}

func affixMethod(has func(s, affix string) bool) stringMethod {
	return takes(func(_ *meter, t mark.Text, args []Value) Value {
		affixes := []Value{args[0]}
		if list, ok := args[0].(*List); ok && list.Tuple {
			affixes = list.Items
		}
		for _, v := range affixes {
			if has(t.String(), textArg(v)) {
				return true
			}
		}
		return false
	}, "affix")
}

func cutMethod(cut func(s, affix string) (from, to int)) stringMethod {
	return takes(func(_ *meter, t mark.Text, args []Value) Value {
		from, to := cut(t.String(), textArg(args[0]))
		return textValue(t.Cut(from, to))
	}, "affix")
}

func afterPrefix(s, affix string) (from, to int) {
	return len(s) - len(strings.TrimPrefix(s, affix)), len(s)
}

func beforeSuffix(s, affix string) (from, to int) { return 0, len(strings.TrimSuffix(s, affix)) }

func findMethod(find func(s, sub string) int) stringMethod {
	return takes(func(_ *meter, t mark.Text, args []Value) Value {
		s := t.String()
		i := find(s, textArg(args[0]))
		if i < 0 {
			return int64(-1)
		}
		return int64(utf8.RuneCountInString(s[:i]))
	}, "sub")
}

func classMethod(is func(rune) bool) stringMethod {
	return takes(func(_ *meter, t mark.Text, _ []Value) Value {
		s := t.String()
		for _, r := range s {
			if !is(r) {
				return false
			}
		}
		return s != ""
	})
}

// countArg returns an optional maximum count; -1 means no maximum.
func countArg(v Value) int { return int(max(-1, min(intArg(orElse(v, int64(-1))), 1<<31))) }

// texts returns a list of strings.
func (m *meter) texts(parts []mark.Text) Value {
	items := make([]Value, len(parts))
	for i, p := range parts {
		items[i] = textValue(p)
		m.charge(valueBytes * len(p.Spans()))
	}
	return m.newList(items)
}

// between returns the parts of t between the spans cuts, which are in ascending order.
func between(t mark.Text, cuts []mark.Span) []mark.Text {
	out := make([]mark.Text, 0, len(cuts)+1)
	at := 0
	for _, c := range cuts {
		out = append(out, t.Cut(at, c.Start))
		at = c.End
	}
	return append(out, t.Cut(at, len(t.String())))
}

// occurrences returns the first or, with last, the last most occurrences of sep in s; a negative most means all.
func occurrences(s, sep string, most int, last bool) []mark.Span {
	var out []mark.Span
	find := strings.Index
	if last {
		find = strings.LastIndex
	}
	for from, to := 0, len(s); most < 0 || len(out) < most; {
		i := find(s[from:to], sep)
		if i < 0 {
			break
		}
		out = append(out, mark.Span{Start: from + i, End: from + i + len(sep)})
		if last {
			to = i
		} else {
			from += i + len(sep)
		}
	}
	if last {
		slices.Reverse(out)
	}
	return out
}

// words returns the spans of the words of s, which are separated by white space.
func words(s string) []mark.Span {
	var out []mark.Span
	start := -1
	for i, r := range s {
		switch space := isSpace(r); {
		case space && start >= 0:
			out = append(out, mark.Span{Start: start, End: i})
			start = -1
		case !space && start < 0:
			start = i
		}
	}
	if start >= 0 {
		out = append(out, mark.Span{Start: start, End: len(s)})
	}
	return out
}

// splitMethod returns split, or with last rsplit. They split a text at a separator, or at white space if none is given.
// The part that is not split further keeps its white space.
func splitMethod(last bool) stringMethod {
	return takes(func(m *meter, t mark.Text, args []Value) Value {
		s, most := t.String(), countArg(args[1])
		if given(args[0]) {
			sep := textArg(args[0])
			if sep == "" {
				panic(runtimef("the separator is empty"))
			}
			return m.texts(between(t, occurrences(s, sep, most, last)))
		}
		at := words(s)
		switch n := len(at); {
		case most < 0 || n <= most:
		case last:
			at = at[n-most-1:]
			at[0].Start = 0
		default:
			at = at[:most+1]
			at[most].End = len(s)
		}
		parts := make([]mark.Text, len(at))
		for i, w := range at {
			parts[i] = t.Cut(w.Start, w.End)
		}
		return m.texts(parts)
	}, "sep", "maxsplit")
}

// lines splits a text at Python's line boundaries, and removes these.
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

// endsLine reports whether a text ends with a complete line boundary. A \r is incomplete, because
//
//	may follow.
func endsLine(s string) bool {
	r, _ := utf8.DecodeLastRuneInString(s)
	return r != '\r' && isLineEnd(r)
}

func partitionMethod(_ *meter, t mark.Text, args []Value) Value {
	sep := textArg(args[0])
	s := t.String()
	i := strings.Index(s, sep)
	if i < 0 {
		return newTuple(textValue(t), "", "")
	}
	return newTuple(textValue(t.Cut(0, i)), textValue(t.Cut(i, i+len(sep))), textValue(t.Cut(i+len(sep), len(s))))
}

func replaceString(m *meter, t mark.Text, args []Value) Value {
	from := textArg(args[0])
	textArg(args[1]) // check that the argument is a string
	to := text(args[1])
	count := countArg(args[2])
	// Compute the size first, so that a result above the limit is not allocated.
	s := t.String()
	hits := strings.Count(s, from)
	if count >= 0 {
		hits = min(hits, count)
	}
	size := len(s) + hits*max(0, len(to.String())-len(from)) + valueBytes*(len(t.Spans())+hits*len(to.Spans()))
	m.charge(size)
	if len(t.Spans()) == 0 && len(to.Spans()) == 0 || from == "" {
		return textValue(rewrite(mixed(t, to), func(string) string {
			return strings.Replace(s, from, to.String(), count)
		}))
	}
	var b mark.Builder
	for i, piece := range between(t, occurrences(s, from, count, false)) {
		if i > 0 {
			b.Write(to)
		}
		b.Write(piece)
	}
	return textValue(b.Text())
}

// mixed returns a if it has marks, otherwise b.
func mixed(a, b mark.Text) mark.Text {
	if len(a.Spans()) > 0 {
		return a
	}
	return b
}

func joinString(m *meter, sep mark.Text, args []Value) Value {
	items := iterate(m, args[0])
	for _, item := range items {
		textArg(item)
	}
	return joinItems(m, items, sep)
}

// joinItems concatenates the texts of items, with sep between them.
func joinItems(m *meter, items []Value, sep mark.Text) Value {
	var b mark.Builder
	for i, item := range items {
		if i > 0 {
			m.add(&b, sep)
		}
		m.add(&b, text(item))
	}
	return textValue(b.Text())
}

func countString(_ *meter, t mark.Text, args []Value) Value {
	return int64(strings.Count(t.String(), textArg(args[0])))
}

// titleWords implements str.title: a letter is upper case after a non-letter, otherwise lower case.
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
