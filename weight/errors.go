package weight

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrMalformed means that a file or index violates the format: its text, its numbers, or the ranges of tensors.
	ErrMalformed = errors.New("malformed checkpoint")
	// ErrNotFound means that a checkpoint, shard or tensor does not exist.
	ErrNotFound = errors.New("not found")
	// ErrScale means that the scale of a weight is missing, ambiguous, or has the wrong shape or dtype.
	ErrScale = errors.New("weight and scale do not match")
	// ErrDType means that the operation does not support the type of a tensor.
	ErrDType = errors.New("unsupported dtype")
	// ErrSource means that a tensor cannot be written: its description is invalid, or its data has another length.
	ErrSource = errors.New("tensor cannot be written")
	// ErrExists means that the target folder already contains a checkpoint.
	ErrExists = errors.New("the folder already contains a checkpoint")
	// ErrClosed means that a checkpoint was used after Close.
	ErrClosed = errors.New("checkpoint is closed")
)

// FileError is one problem of a file. It wraps ErrMalformed or ErrNotFound.
type FileError struct {
	File   string // path of the file
	Tensor string // name of the tensor, or empty
	Offset int64  // byte offset of the problem in the file
	Reason string
	Kind   error
}

// Error returns the problem with the file, the byte offset and, if there is one, the tensor.
func (e *FileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "weight: %s: byte %d: ", e.File, e.Offset)
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", clip(e.Tensor))
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Unwrap returns ErrMalformed or ErrNotFound.
func (e *FileError) Unwrap() error { return e.Kind }

// maxProblems is the maximum number of problems of a file that are listed; every tensor may have one.
const maxProblems = 16

// problems collects the problems of a file, to report all of them together.
type problems struct {
	file   string
	errs   []error
	hidden int // number of problems that are not listed
}

// add adds a problem at a byte offset of the file.
func (p *problems) add(offset int64, tensor, format string, args ...any) {
	p.addKind(ErrMalformed, offset, tensor, format, args...)
}

func (p *problems) addKind(kind error, offset int64, tensor, format string, args ...any) {
	if len(p.errs) == maxProblems {
		p.hidden++
		return
	}
	p.errs = append(p.errs, &FileError{File: p.file, Tensor: tensor, Offset: offset,
		Reason: fmt.Sprintf(format, args...), Kind: kind})
}

// err returns all problems as one error, or nil if there are none.
func (p *problems) err() error {
	if p.hidden > 0 {
		return errors.Join(append(p.errs[:len(p.errs):len(p.errs)],
			fmt.Errorf("weight: %s: and %d more problems", p.file, p.hidden))...)
	}
	return errors.Join(p.errs...)
}

// clip shortens a name from a file for error messages.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}
