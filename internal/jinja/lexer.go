package jinja

import (
	"strings"
	"unicode"
	"unicode/utf8"
)

type tokenKind int

const (
	tokEOF tokenKind = iota
	tokText
	tokBlockBegin // {%
	tokBlockEnd   // %}
	tokVarBegin   // {{
	tokVarEnd     // }}
	tokName
	tokString
	tokInteger
	tokFloat
	tokOperator
)

type token struct {
	kind tokenKind
	text string // name, operator, number as written, decoded string, or template text
	at   pos
}

func (t token) String() string {
	switch t.kind {
	case tokEOF:
		return "end of template"
	case tokText:
		return "template text"
	case tokBlockBegin:
		return "{%"
	case tokBlockEnd:
		return "%}"
	case tokVarBegin:
		return "{{"
	case tokVarEnd:
		return "}}"
	case tokString:
		return "string literal"
	}
	return "'" + t.text + "'"
}

// lexer divides a template into tokens. It also removes white space that "-", trim_blocks and lstrip_blocks remove.
type lexer struct {
	src    string
	at     int
	tokens []token
	// lineStart reports whether the text so far ends with a newline: spaces before a block tag are then indentation,
	// which is removed.
	lineStart bool
}

// normalise converts line ends to
//
//	and removes one newline at the end, as Jinja2 does.
func normalise(src string) string {
	src = strings.ReplaceAll(src, "\r\n", "\n")
	src = strings.ReplaceAll(src, "\r", "\n")
	return strings.TrimSuffix(src, "\n")
}

func lex(src string) ([]token, error) {
	l := &lexer{src: src, lineStart: true}
	for l.at < len(l.src) {
		if err := l.root(); err != nil {
			return nil, err
		}
	}
	l.emit(tokEOF, "", l.at)
	return l.tokens, nil
}

func (l *lexer) emit(kind tokenKind, text string, at int) {
	l.tokens = append(l.tokens, token{kind, text, pos(at)})
}

// nextTag finds the next "{{", "{%" or "{#" at or after from.
func nextTag(src string, from int) int {
	for {
		i := strings.IndexByte(src[from:], '{')
		if i < 0 || from+i+1 >= len(src) {
			return -1
		}
		from += i
		switch src[from+1] {
		case '{', '%', '#':
			return from
		}
		from++
	}
}

// root reads the template text up to the next tag, and then the tag.
func (l *lexer) root() error {
	start := l.at
	tag := nextTag(l.src, l.at)
	if tag < 0 {
		l.emit(tokText, l.src[start:], start)
		l.at = len(l.src)
		return nil
	}
	text := l.src[start:tag]
	after := tag + 2
	sign := byte(0)
	if after < len(l.src) && (l.src[after] == '-' || l.src[after] == '+') {
		sign = l.src[after]
		after++
	}
	switch {
	case sign == '-':
		text = strings.TrimRightFunc(text, unicode.IsSpace)
	case sign != '+' && l.src[tag+1] != '{':
		text = l.trimIndent(text)
	}
	if text != "" {
		l.emit(tokText, text, start)
	}
	l.at = after
	switch l.src[tag+1] {
	case '#':
		return l.comment(tag)
	case '{':
		l.emit(tokVarBegin, "", tag)
		return l.expression(tokVarEnd, tag)
	}
	if end, ok := l.matchRaw(after, "raw"); ok {
		return l.raw(tag, end)
	}
	l.emit(tokBlockBegin, "", tag)
	return l.expression(tokBlockEnd, tag)
}

// trimIndent removes the spaces between the start of a line and a block tag.
func (l *lexer) trimIndent(text string) string {
	line := strings.LastIndexByte(text, '\n') + 1
	if line == 0 && !l.lineStart {
		return text
	}
	if strings.TrimFunc(text[line:], unicode.IsSpace) == "" {
		return text[:line]
	}
	return text
}

// closeTag skips the white space after the end of a block or comment, which begins at offset after: all white space for
// the sign "-", nothing for "+", otherwise one newline.
func (l *lexer) closeTag(sign byte, after int) {
	l.at = after
	switch sign {
	case '-':
		rest := strings.TrimLeftFunc(l.src[after:], unicode.IsSpace)
		l.at = len(l.src) - len(rest)
	case '+':
	default:
		if strings.HasPrefix(l.src[after:], "\n") {
			l.at++
		}
	}
	l.lineStart = l.src[l.at-1] == '\n'
}

func (l *lexer) comment(tag int) error {
	i := strings.Index(l.src[l.at:], "#}")
	if i < 0 {
		return syntaxf(pos(tag), "comment is not closed by #}")
	}
	end := l.at + i
	sign := byte(0)
	if i > 0 && (l.src[end-1] == '-' || l.src[end-1] == '+') {
		sign = l.src[end-1]
	}
	l.closeTag(sign, end+2)
	return nil
}

// matchRaw reports whether a tag contains only the given word, and returns the offset after the tag. The inside of the
// tag begins at offset at.
func (l *lexer) matchRaw(at int, word string) (int, bool) {
	rest := strings.TrimLeftFunc(l.src[at:], unicode.IsSpace)
	if !strings.HasPrefix(rest, word) {
		return 0, false
	}
	rest = strings.TrimLeftFunc(rest[len(word):], unicode.IsSpace)
	for _, end := range []string{"%}", "-%}", "+%}"} {
		if strings.HasPrefix(rest, end) {
			return len(l.src) - len(rest) + len(end), true
		}
	}
	return 0, false
}

// raw reads everything up to the tag endraw as text.
func (l *lexer) raw(tag, open int) error {
	sign := byte('+') // unlike other blocks, raw keeps the newline after its tag
	if l.src[open-3] == '-' {
		sign = '-'
	}
	l.closeTag(sign, open)
	start := l.at
	for from := start; ; {
		i := strings.Index(l.src[from:], "{%")
		if i < 0 {
			return syntaxf(pos(tag), "raw block is not closed by {%% endraw %%}")
		}
		begin := from + i
		inside, sign := begin+2, byte(0)
		if inside < len(l.src) && (l.src[inside] == '-' || l.src[inside] == '+') {
			sign = l.src[inside]
			inside++
		}
		end, ok := l.matchRaw(inside, "endraw")
		if !ok {
			from = begin + 2
			continue
		}
		text := l.src[start:begin]
		switch sign {
		case '-':
			text = strings.TrimRightFunc(text, unicode.IsSpace)
		case '+':
		default:
			text = l.trimIndent(text)
		}
		if text != "" {
			l.emit(tokText, text, start)
		}
		closing := byte(0)
		if c := l.src[end-3]; c == '-' || c == '+' {
			closing = c
		}
		l.closeTag(closing, end)
		return nil
	}
}

// expression reads the tokens inside a tag, up to its end. "}}" inside brackets is not the end, because nested dict
// literals may close with it.
func (l *lexer) expression(end tokenKind, tag int) error {
	var open []byte
	for {
		l.at += len(l.src[l.at:]) - len(strings.TrimLeftFunc(l.src[l.at:], unicode.IsSpace))
		if l.at >= len(l.src) {
			return syntaxf(pos(tag), "tag is not closed")
		}
		if len(open) == 0 && l.tagEnd(end) {
			return nil
		}
		c := l.src[l.at]
		var err error
		switch {
		case c == '\'' || c == '"':
			err = l.stringLiteral(c)
		case c >= '0' && c <= '9':
			l.number()
		case c == '_' || c >= utf8.RuneSelf || unicode.IsLetter(rune(c)):
			err = l.name()
		default:
			open, err = l.operator(open)
		}
		if err != nil {
			return err
		}
	}
}

// tagEnd consumes the end of the current tag, if it is next.
func (l *lexer) tagEnd(end tokenKind) bool {
	rest, start := l.src[l.at:], l.at
	if end == tokVarEnd {
		switch {
		case strings.HasPrefix(rest, "-}}"):
			l.emit(tokVarEnd, "", start)
			l.closeTag('-', start+3)
		case strings.HasPrefix(rest, "}}"):
			l.emit(tokVarEnd, "", start)
			l.at += 2
			l.lineStart = false
		default:
			return false
		}
		return true
	}
	switch {
	case strings.HasPrefix(rest, "-%}"), strings.HasPrefix(rest, "+%}"):
		l.emit(tokBlockEnd, "", start)
		l.closeTag(rest[0], start+3)
	case strings.HasPrefix(rest, "%}"):
		l.emit(tokBlockEnd, "", start)
		l.closeTag(0, start+2)
	default:
		return false
	}
	return true
}

func (l *lexer) name() error {
	start := l.at
	for l.at < len(l.src) {
		r, size := utf8.DecodeRuneInString(l.src[l.at:])
		if r == utf8.RuneError && size <= 1 {
			return syntaxf(pos(l.at), "source is not UTF-8")
		}
		if r != '_' && !unicode.IsLetter(r) && !unicode.IsDigit(r) {
			break
		}
		l.at += size
	}
	if l.at == start {
		r, _ := utf8.DecodeRuneInString(l.src[l.at:])
		return syntaxf(pos(start), "unexpected character %q", r)
	}
	l.emit(tokName, l.src[start:l.at], start)
	return nil
}

// operators lists the operators, longest first.
var operators = []string{
	"//", "**", "==", "!=", ">=", "<=",
	"+", "-", "/", "*", "%", "~", "[", "]", "(", ")", "{", "}", ">", "<", "=", ".", ":", "|", ",", ";",
}

func (l *lexer) operator(open []byte) ([]byte, error) {
	rest := l.src[l.at:]
	for _, op := range operators {
		if !strings.HasPrefix(rest, op) {
			continue
		}
		switch op {
		case "(":
			open = append(open, ')')
		case "[":
			open = append(open, ']')
		case "{":
			open = append(open, '}')
		case ")", "]", "}":
			if len(open) == 0 || open[len(open)-1] != op[0] {
				return open, syntaxf(pos(l.at), "unexpected %q", op)
			}
			open = open[:len(open)-1]
		}
		l.emit(tokOperator, op, l.at)
		l.at += len(op)
		return open, nil
	}
	return open, syntaxf(pos(l.at), "unexpected character %q", rest[0])
}
