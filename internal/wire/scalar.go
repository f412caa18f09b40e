package wire

import (
	"bytes"
	"math"
	"strconv"

	"sparrow/internal/jsonscan"
)

// WrongShape reports a value of the wrong type and skips it.
func (c *Reader) WrongShape(want string) {
	if got := c.Shape(); got != jsonscan.None {
		c.Problem(CodeInvalidType, "expected %s, got %s", want, got)
		c.Skip()
	}
}

// Str reads a string. If the value has another type, it reports a problem and ok is false.
func (c *Reader) Str() (value string, ok bool) {
	if c.Shape() != jsonscan.String {
		c.WrongShape("a string")
		return "", false
	}
	return c.Text(), c.malformed == nil
}

func (c *Reader) Boolean() (value, ok bool) {
	if c.Shape() != jsonscan.Bool {
		c.WrongShape("a boolean")
		return false, false
	}
	return c.Word() == "true", c.malformed == nil
}

// number reads a number and returns its text; want describes it in the error.
func (c *Reader) number(want string) (text []byte, ok bool) {
	if c.Shape() != jsonscan.Number {
		c.WrongShape(want)
		return nil, false
	}
	text = c.numeral()
	return text, c.malformed == nil
}

// Float reads a number that fits a float64.
func (c *Reader) Float() (value float64, ok bool) {
	text, ok := c.number("a number")
	if !ok {
		return 0, false
	}
	value, err := strconv.ParseFloat(string(text), 64)
	if err != nil || math.IsInf(value, 0) {
		c.Problem(CodeOutOfRange, "%s is too large for a 64-bit floating-point number", jsonscan.Clip(string(text)))
		return 0, false
	}
	return value, true
}

// exactFloat is a limit: float64 represents every integer up to this magnitude.
const exactFloat = 1 << 53

// Integer reads an integer that fits in an int64. It may be written as 3.0 or 3e0.
func (c *Reader) Integer() (value int64, ok bool) {
	text, ok := c.number("an integer")
	if !ok {
		return 0, false
	}
	if value, err := strconv.ParseInt(string(text), 10, 64); err == nil {
		return value, true
	}
	if !bytes.ContainsAny(text, ".eE") {
		c.Problem(CodeOutOfRange, "%s does not fit a 64-bit integer", jsonscan.Clip(string(text)))
		return 0, false
	}
	f, err := strconv.ParseFloat(string(text), 64)
	switch {
	case err != nil || math.Abs(f) > exactFloat:
		c.Problem(CodeOutOfRange, "%s is too large for an integer written with a fraction or an exponent",
			jsonscan.Clip(string(text)))
		return 0, false
	case f != math.Trunc(f):
		c.Problem(CodeInvalidType, "expected an integer, got %s", jsonscan.Clip(string(text)))
		return 0, false
	}
	return int64(f), true
}

// IntegerIn reads an integer in [lo, hi], the range of the caller's type.
func (c *Reader) IntegerIn(lo, hi int64) (value int64, ok bool) {
	value, ok = c.Integer()
	if ok && (value < lo || value > hi) {
		c.Problem(CodeOutOfRange, "%d is not in [%d, %d]", value, lo, hi)
		return 0, false
	}
	return value, ok
}

// Word consumes and returns true, false or null.
func (c *Reader) Word() string {
	w, err := c.scan.Word()
	c.check(err)
	return w
}

// numeral consumes a number and returns its text as a slice of the body, because a prompt of a million token ids would
// otherwise allocate a million strings.
func (c *Reader) numeral() []byte {
	text, err := c.scan.Number()
	c.check(err)
	return text
}

// Text consumes a string and returns its value.
func (c *Reader) Text() string {
	s, err := c.scan.Str()
	c.check(err)
	return string(s)
}
