package grammar

import (
	"errors"
	"fmt"
)

// ErrSchema means that a schema is not JSON, or that a keyword has a value that JSON Schema does not allow.
var ErrSchema = errors.New("invalid schema")

// ErrUnsupported means that a schema is valid but cannot be enforced here.
var ErrUnsupported = errors.New("unsupported schema")

// ErrTooLarge means that a schema or a pattern exceeds one of the limits in limits.go.
var ErrTooLarge = errors.New("schema too large")

// ErrUnsatisfiable means that no document can satisfy the schema.
var ErrUnsatisfiable = errors.New("unsatisfiable schema")

// ErrVocabulary means that JSON cannot be written with the tokens of a vocabulary.
var ErrVocabulary = errors.New("grammar: the vocabulary is not supported")

// ErrRejected means that a token or a text is not allowed as the next part of the document. The state is unchanged.
var ErrRejected = errors.New("grammar: the token is not allowed at this position")

// ErrNoToken means that the document is incomplete but no token is allowed. This happens only with vocabularies without
// a token for every single byte.
var ErrNoToken = errors.New("grammar: no token can continue the document")

// ErrMask means that a mask has too few words for the vocabulary.
var ErrMask = errors.New("grammar: mask too short")

// SchemaError describes a problem in a schema, with its location. It wraps one of the errors above.
type SchemaError struct {
	Pointer string // JSON pointer of the schema object, "" for the root
	Keyword string // keyword with the problem, "" if it is the whole schema
	Problem string // what was found, and what is supported
	Kind    error  // ErrSchema, ErrUnsupported, ErrTooLarge or ErrUnsatisfiable
}

func (e *SchemaError) Error() string {
	where := "#" + e.Pointer
	if e.Keyword != "" {
		where += ": " + e.Keyword
	}
	return fmt.Sprintf("%v: %s: %s", e.Kind, where, e.Problem)
}

func (e *SchemaError) Unwrap() error { return e.Kind }
