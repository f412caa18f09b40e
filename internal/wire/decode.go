package wire

import "sparrow/internal/jsonscan"

// Limits on a body.
const (
	MaxDepth     = 128 // nesting of objects and arrays, including JSON schemas
	MaxNameBytes = 64  // bytes of a tool or schema name
)

// maxIgnored is the maximum number of ignored fields that are named.
const maxIgnored = 32

// maxProblems is the maximum number of problems in one error message, because a body may have thousands of unknown
// names.
const maxProblems = 16

// Decoder has the settings for reading the body of a request, and collects ignored fields.
type Decoder struct {
	// Strict refuses unknown fields. Otherwise they are ignored.
	Strict bool
	// Ignored are the fields of the last body that had no effect, each once, with [] for any index:
	// messages[].annotations. Its text is plain ASCII. At most maxIgnored are named; "..." represents the others.
	Ignored []string
}

// Decode reads an object, then checks it. Reading and checking report into one list of problems.
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
