package jinja

import (
	"strconv"
	"strings"
	"unicode/utf8"
)

// number reads an integer or a float. After a dot it reads only digits, so that "parts.0.type" has no float.
func (l *lexer) number() {
	start := l.at
	afterDot := len(l.tokens) > 0 && l.tokens[len(l.tokens)-1].text == "." &&
		l.tokens[len(l.tokens)-1].kind == tokOperator
	if !afterDot && l.src[start] == '0' && start+1 < len(l.src) &&
		strings.ContainsRune("xXoObB", rune(l.src[start+1])) {
		l.at += 2
		for l.at < len(l.src) && (isHex(l.src[l.at]) || l.src[l.at] == '_') {
			l.at++
		}
		l.emit(tokInteger, l.src[start:l.at], start)
		return
	}
	l.digits()
	kind := tokInteger
	if !afterDot {
		if l.at+1 < len(l.src) && l.src[l.at] == '.' && isDigit(l.src[l.at+1]) {
			l.at++
			l.digits()
			kind = tokFloat
		}
		if l.exponent() {
			kind = tokFloat
		}
	}
	l.emit(kind, l.src[start:l.at], start)
}

func (l *lexer) digits() {
	for l.at < len(l.src) && (isDigit(l.src[l.at]) ||
		l.src[l.at] == '_' && l.at+1 < len(l.src) && isDigit(l.src[l.at+1])) {
		l.at++
	}
}

func (l *lexer) exponent() bool {
	at := l.at
	if at >= len(l.src) || l.src[at] != 'e' && l.src[at] != 'E' {
		return false
	}
	at++
	if at < len(l.src) && (l.src[at] == '+' || l.src[at] == '-') {
		at++
	}
	if at >= len(l.src) || !isDigit(l.src[at]) {
		return false
	}
	l.at = at
	l.digits()
	return true
}

func isDigit(c byte) bool { return c >= '0' && c <= '9' }

func isHex(c byte) bool {
	return isDigit(c) || c >= 'a' && c <= 'f' || c >= 'A' && c <= 'F'
}

// stringLiteral reads a quoted string and decodes its escapes like Python: an unknown escape keeps its backslash.
func (l *lexer) stringLiteral(quote byte) error {
	start := l.at
	l.at++
	from := l.at
	escaped := false
	for {
		if l.at >= len(l.src) {
			return syntaxf(pos(start), "string is not closed")
		}
		c := l.src[l.at]
		if c == '\\' {
			escaped = true
			l.at += 2
			continue
		}
		if c == quote {
			break
		}
		l.at++
	}
	text := l.src[from:l.at]
	l.at++
	if !utf8.ValidString(text) {
		return syntaxf(pos(start), "source is not UTF-8")
	}
	if escaped {
		decoded, problem := unescape(text)
		if problem != "" {
			return syntaxf(pos(start), "%s", problem)
		}
		text = decoded
	}
	l.emit(tokString, text, start)
	return nil
}

var simpleEscapes = map[byte]string{
	'\n': "", '\\': "\\", '\'': "'", '"': "\"", 'a': "\a", 'b': "\b", 'f': "\f", 'n': "\n", 'r': "\r", 't': "\t",
	'v': "\v",
}

// unescape decodes backslash escapes; problem describes an invalid escape; it is empty if there is none.
func unescape(text string) (decoded, problem string) {
	var b strings.Builder
	for i := 0; i < len(text); i++ {
		if text[i] != '\\' || i+1 == len(text) {
			b.WriteByte(text[i])
			continue
		}
		i++
		c := text[i]
		if s, ok := simpleEscapes[c]; ok {
			b.WriteString(s)
			continue
		}
		digits, base := 0, 16
		switch {
		case c == 'x':
			digits = 2
		case c == 'u':
			digits = 4
		case c == 'U':
			digits = 8
		case c >= '0' && c <= '7':
			base = 8
		default:
			b.WriteByte('\\')
			b.WriteByte(c)
			continue
		}
		from := i + 1
		if base == 8 {
			from, digits = i, 1
			for digits < 3 && from+digits < len(text) && text[from+digits] >= '0' && text[from+digits] <= '7' {
				digits++
			}
		}
		if from+digits > len(text) {
			return "", "string ends inside an escape"
		}
		n, err := strconv.ParseUint(text[from:from+digits], base, 32)
		if err != nil || n > utf8.MaxRune {
			return "", "escape \\" + text[i:from+digits] + " is not a character"
		}
		b.WriteRune(rune(n))
		i = from + digits - 1
	}
	return b.String(), ""
}
