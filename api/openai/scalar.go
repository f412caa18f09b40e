package openai

import (
	"bytes"
	"math"
	"strconv"

	"sparrow/internal/jsonscan"
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
		c.problem(CodeOutOfRange, "%s is too large for a 64-bit floating-point number", jsonscan.Clip(string(text)))
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
		c.problem(CodeOutOfRange, "%s does not fit a 64-bit integer", jsonscan.Clip(string(text)))
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || math.Abs(f) > exactFloat:
		c.problem(CodeOutOfRange, "%s is too large for an integer written with a fraction or an exponent",
			jsonscan.Clip(string(text)))
		return 0, false
	case f != math.Trunc(f):
		c.problem(CodeInvalidType, "expected an integer, got %s", jsonscan.Clip(string(text)))
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
	w, err := c.Word()
	c.check(err)
	return w
}

// numeral consumes a number and returns its text: a piece of the body, so that a prompt of a million token ids makes no
// million strings.
func (c *cursor) numeral() []byte {
	text, err := c.Number()
	c.check(err)
	return text
}

// text consumes a string.
func (c *cursor) text() string {
	s, err := c.Str()
	c.check(err)
	return string(s)
}
