package wire

import "sparrow/internal/jsonscan"

// Limits on a body.
const (
	MaxDepth     = 128 // nesting depth of objects and arrays, including JSON schemas
	MaxNameBytes = 64  // bytes of the name of a tool or schema
)

// maxIgnored is the maximum number of ignored fields that are reported.
const maxIgnored = 32

// maxProblems is the maximum number of problems in an error message; a body may have thousands.
const maxProblems = 16

// Decoder holds the settings for decoding a body, and the ignored fields of the last body.
type Decoder struct {
	// Strict makes unknown fields an error. Otherwise they are ignored.
	Strict bool
	// Ignored lists the paths of fields that had no effect, each once, with [] for every index: messages[].annotations.
	// Paths are ASCII. If there are more than maxIgnored, the last element is "...".
	Ignored []string
}

// Decode reads an object and then validates it. The error lists the problems of both.
func Decode[T any](d *Decoder, body []byte, known Fields[T], check func(*T, *Problems)) (*T, *Error) {
	c := NewReader(body)
	c.strict = d.Strict
	v := new(T)
	if got := c.Shape(); got != jsonscan.Object && got != jsonscan.None {
		c.Problem(CodeInvalidType, "the body must be a JSON object, got %s", got)
		c.Skip()
		return nil, c.Finish()
	}
	ReadObject(c, v, known)
	d.Ignored = c.ignored
	if c.malformed == nil {
		check(v, &c.Problems)
	}
	if err := c.Finish(); err != nil {
		return nil, err
	}
	return v, nil
}
