package openai

import (
	"bytes"
	"math"
	"strconv"
	"unicode/utf16"
	"unicode/utf8"
)

// wrongShape reports and skips a value that is not what the field takes.
func (c *cursor) wrongShape(want string) {
	if got := c.shape(); got != shapeNone {
		c.problem(CodeInvalidType, "expected %s, got %s", want, got)
		c.skip()
	}
}

// str reads a string; ok is false when it was something else, which is then reported.
func (c *cursor) str() (value string, ok bool) {
	if c.shape() != shapeString {
		c.wrongShape("a string")
		return "", false
	}
	return c.text(), c.malformed == nil
}

func (c *cursor) boolean() (value, ok bool) {
	if c.shape() != shapeBool {
		c.wrongShape("a boolean")
		return false, false
	}
	return c.word() == "true", c.malformed == nil
}

// number reads the text of a number.
func (c *cursor) number(want string) (text []byte, ok bool) {
	if c.shape() != shapeNumber {
		c.wrongShape(want)
		return nil, false
	}
	text = c.numeral()
	return text, c.malformed == nil
}

// float reads a number that fits a float64.
func (c *cursor) float() (value float64, ok bool) {
	text, ok := c.number("a number")
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(value, 0) {
		c.problem(CodeOutOfRange, "%s is too large for a 64-bit floating-point number", clip(string(text)))
		return 0, false
	}
	return value, true
}

// exactFloat is the largest magnitude up to which every integer has a float64.
const exactFloat = 1 << 53

// integer reads a whole number that fits an int64, also when it is written as 3.0 or 3e0.
func (c *cursor) integer() (value int64, ok bool) {
	text, ok := c.number("an integer")
	if !ok {
		return 0, false
	}
	if value, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return value, true
	}
	if !bytes.ContainsAny(text, ".eE") {
		c.problem(CodeOutOfRange, "%s does not fit a 64-bit integer", clip(string(text)))
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || math.Abs(f) > exactFloat:
		c.problem(CodeOutOfRange, "%s is too large for an integer written with a fraction or an exponent", clip(string(text)))
		return 0, false
	case f != math.Trunc(f):
		c.problem(CodeInvalidType, "expected an integer, got %s", clip(string(text)))
		return 0, false
	}
	return int64(f), true
}

// integerIn reads a whole number in [lo, hi], which must fit the caller's type.
func (c *cursor) integerIn(lo, hi int64) (value int64, ok bool) {
	value, ok = c.integer()
	if ok && (value < lo || value > hi) {
		c.problem(CodeOutOfRange, "%d is not in [%d, %d]", value, lo, hi)
		return 0, false
	}
	return value, ok
}

// word consumes true, false or null.
func (c *cursor) word() string {
	for _, w := range []string{"true", "false", "null"} {
		if end := c.pos + len(w); end <= len(c.data) && string(c.data[c.pos:end]) == w {
			c.pos = end
			return w
		}
	}
	c.syntax("expected true, false or null, found %s", c.found())
	return ""
}

// numeral consumes a number by JSON's grammar, which is narrower than Go's, and returns its text: a piece
// of the body, so that a prompt of a million token ids makes no million strings.
func (c *cursor) numeral() []byte {
	from := c.pos
	if c.at('-') {
		c.pos++
	}
	switch {
	case c.at('0'):
		c.pos++
	case !c.digits("expected a digit"):
		return nil
	}
	if c.at('.') {
		c.pos++
		if !c.digits("expected a digit after the decimal point") {
			return nil
		}
	}
	if c.at('e') || c.at('E') {
		c.pos++
		if c.at('+') || c.at('-') {
			c.pos++
		}
		if !c.digits("expected a digit in the exponent") {
			return nil
		}
	}
	if c.pos < len(c.data) && nameByte(c.data[c.pos]) {
		c.syntax("expected the number to end, found %s", c.found())
		return nil
	}
	return c.data[from:c.pos]
}

func (c *cursor) at(b byte) bool { return c.pos < len(c.data) && c.data[c.pos] == b }

// digits consumes at least one digit.
func (c *cursor) digits(complaint string) bool {
	from := c.pos
	for c.pos < len(c.data) && c.data[c.pos] >= '0' && c.data[c.pos] <= '9' {
		c.pos++
	}
	if c.pos == from {
		c.syntax("%s, found %s", complaint, c.found())
		return false
	}
	return true
}

// text consumes a string, whose opening quote the caller has seen. The bytes are known to be UTF-8.
func (c *cursor) text() string {
	c.pos++
	from := c.pos
	c.plain()
	if c.at('"') {
		c.pos++
		return string(c.data[from : c.pos-1])
	}
	out := append([]byte(nil), c.data[from:c.pos]...)
	for c.malformed == nil {
		switch {
		case c.at('"'):
			c.pos++
			return string(out)
		case c.at('\\'):
			out = c.escape(out)
		case c.pos >= len(c.data):
			c.syntax("the body ends inside a string")
		default:
			c.syntax("control character 0x%02x inside a string must be written as an escape", c.data[c.pos])
		}
		from = c.pos
		c.plain()
		out = append(out, c.data[from:c.pos]...)
	}
	return ""
}

// plain moves to the next byte of a string that is not simply itself.
func (c *cursor) plain() {
	for c.pos < len(c.data) {
		if b := c.data[c.pos]; b == '"' || b == '\\' || b < 0x20 {
			return
		}
		c.pos++
	}
}

// escapes are the one-letter escapes of a JSON string.
var escapes = map[byte]byte{'"': '"', '\\': '\\', '/': '/', 'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t'}

// escape consumes one escape sequence and appends what it stands for.
func (c *cursor) escape(out []byte) []byte {
	start := c.pos
	c.pos++
	if c.at('u') {
		r := c.codeUnit()
		if utf16.IsSurrogate(r) {
			low := rune(-1)
			if c.at('\\') && c.pos+1 < len(c.data) && c.data[c.pos+1] == 'u' {
				c.pos++
				low = c.codeUnit()
			}
			if r = utf16.DecodeRune(r, low); r == utf8.RuneError && c.malformed == nil {
				c.problem(CodeInvalidValue, "the escape at byte %d is half of a surrogate pair, which UTF-8 text cannot hold", start)
			}
		}
		return utf8.AppendRune(out, r)
	}
	if c.pos < len(c.data) {
		if b, ok := escapes[c.data[c.pos]]; ok {
			c.pos++
			return append(out, b)
		}
	}
	c.syntax("expected an escape character after the backslash, found %s", c.found())
	return out
}

// codeUnit consumes uXXXX.
func (c *cursor) codeUnit() rune {
	c.pos++
	if c.pos+4 > len(c.data) {
		c.syntax("expected four hexadecimal digits, found the end of the body")
		return utf8.RuneError
	}
	v, err := strconv.ParseUint(string(c.data[c.pos:c.pos+4]), 16, 16)
	if err != nil {
		c.syntax("expected four hexadecimal digits, found %q", clip(string(c.data[c.pos:c.pos+4])))
		return utf8.RuneError
	}
	c.pos += 4
	return rune(v)
}
