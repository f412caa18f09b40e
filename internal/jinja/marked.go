package jinja

import (
	"unicode/utf8"

	"sparrow/internal/mark"
)

// Strings that contain text of the request are *mark.Text values. In templates they behave like other strings.
// Operations that combine strings keep the mark of every character. Operations that may change characters depending on
// their neighbours (title, lower, ...) mark the whole result if any part was marked.

// Mark returns a copy of a value in which all strings, including items, keys and values, are marked as text of the
// request.
func Mark(v Value) Value {
	switch v := v.(type) {
	case string:
		return textValue(mark.Marked(v))
	case *List:
		out := &List{Items: make([]Value, len(v.Items)), Tuple: v.Tuple}
		for i, item := range v.Items {
			out.Items[i] = Mark(item)
		}
		return out
	case *Dict:
		out := NewDict()
		for i, key := range v.keys {
			out.set(Mark(key), Mark(v.vals[i]))
		}
		return out
	}
	return v
}

// textValue returns a text as a value: a plain string if it has no marks.
func textValue(t mark.Text) Value {
	if len(t.Spans()) == 0 {
		return t.String()
	}
	return &t
}

// asText returns the text of a string; ok is false for other values.
func asText(v Value) (mark.Text, bool) {
	switch v := v.(type) {
	case string:
		return mark.Plain(v), true
	case *mark.Text:
		return *v, true
	case mark.Text: // the object of a method call
		return v, true
	}
	return mark.Text{}, false
}

// asString returns the characters of a string without marks; ok is false for other values.
func asString(v Value) (string, bool) {
	t, ok := asText(v)
	return t.String(), ok
}

// unmarked returns a string without its marks; other values are returned unchanged.
func unmarked(v Value) Value {
	if t, ok := v.(*mark.Text); ok {
		return t.String()
	}
	return v
}

// newText returns a text as a value, and counts the memory of the text.
func (m *meter) newText(t mark.Text) Value {
	m.charge(len(t.String()) + valueBytes*len(t.Spans()))
	return textValue(t)
}

// rewrite applies f to a text. If any part of the text is marked, the whole result is marked, because f may move
// characters.
func rewrite(t mark.Text, f func(string) string) mark.Text {
	if len(t.Spans()) == 0 {
		return mark.Plain(f(t.String()))
	}
	return mark.Marked(f(t.String()))
}

// characters returns the characters of a text, each with its mark.
func characters(t mark.Text) []Value {
	s := t.String()
	out := make([]Value, 0, len(s))
	for i, r := range s {
		if len(t.Spans()) == 0 {
			out = append(out, string(r))
			continue
		}
		_, size := utf8.DecodeRuneInString(s[i:])
		out = append(out, textValue(t.Cut(i, i+size)))
	}
	return out
}

// joined concatenates strings.
func joined(parts []Value) mark.Text {
	var b mark.Builder
	for _, p := range parts {
		t, _ := asText(p)
		b.Write(t)
	}
	return b.Text()
}
