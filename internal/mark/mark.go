// Package mark implements text in which the bytes that come from a request are marked.
//
// Pieces of marked and unmarked text are concatenated, and the spans of marked bytes are stored separately, so no
// character is reserved for marks.
package mark

import (
	"slices"
	"strings"
)

// Span is the byte range [Start, End) of a text.
type Span struct{ Start, End int }

// Text is a string with marked spans. The zero value is empty. Texts are immutable.
type Text struct {
	s     string
	spans []Span // ascending and not empty; spans do not touch each other
}

// Plain returns a text without marks.
func Plain(s string) Text { return Text{s: s} }

// Marked returns a text of which every byte is marked.
func Marked(s string) Text {
	if s == "" {
		return Text{}
	}
	return Text{s, []Span{{0, len(s)}}}
}

// String returns the text without its marks.
func (t Text) String() string { return t.s }

// Spans returns the marked bytes: ascending and disjoint. The slice must not be changed.
func (t Text) Spans() []Span { return t.spans }

// Cut returns the bytes [from, to) with their marks.
func (t Text) Cut(from, to int) Text { return Text{t.s[from:to], Within(t.spans, from, to)} }

// Map applies f to each longest run of bytes that are all marked or all not marked, and joins the results.
func (t Text) Map(f func(string) string) Text {
	var b Builder
	at := 0
	for _, m := range t.spans {
		b.WriteString(f(t.s[at:m.Start]))
		b.Mark(f(t.s[m.Start:m.End]))
		at = m.End
	}
	b.WriteString(f(t.s[at:]))
	return b.Text()
}

// Within returns the parts of spans inside [from, to), as offsets relative to from.
func Within(spans []Span, from, to int) []Span {
	first, _ := slices.BinarySearchFunc(spans, from, func(m Span, from int) int {
		if m.End <= from {
			return -1
		}
		return 1
	})
	var out []Span
	for _, m := range spans[first:] {
		if m.Start >= to {
			break
		}
		if start, end := max(m.Start, from), min(m.End, to); start < end {
			out = append(out, Span{start - from, end - from})
		}
	}
	return out
}

// Builder joins pieces. The zero value is empty.
type Builder struct {
	b     strings.Builder
	spans []Span
}

// Len returns the number of bytes written.
func (b *Builder) Len() int { return b.b.Len() }

// WriteString adds text without marks.
func (b *Builder) WriteString(s string) { b.b.WriteString(s) }

// WriteByte adds one byte without a mark. It never fails.
func (b *Builder) WriteByte(c byte) error { return b.b.WriteByte(c) }

// Mark adds marked text.
func (b *Builder) Mark(s string) {
	b.span(Span{b.Len(), b.Len() + len(s)})
	b.b.WriteString(s)
}

// Write adds a text with its marks.
func (b *Builder) Write(t Text) {
	at := b.Len()
	for _, m := range t.spans {
		b.span(Span{at + m.Start, at + m.End})
	}
	b.b.WriteString(t.s)
}

func (b *Builder) span(m Span) {
	if m.Start == m.End {
		return
	}
	if n := len(b.spans); n > 0 && b.spans[n-1].End == m.Start {
		b.spans[n-1].End = m.End
		return
	}
	b.spans = append(b.spans, m)
}

// Text returns the written text. Nothing may be written afterwards.
func (b *Builder) Text() Text { return Text{b.b.String(), b.spans} }
