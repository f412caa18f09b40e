package weight

import (
	"errors"
	"fmt"
	"strings"
)

var (
	// ErrMalformed reports a file or index that breaks the format: its text, its numbers, or the way tensors tile the
	// data.
	ErrMalformed = errors.New("malformed checkpoint")
	// ErrNotFound reports a checkpoint, shard or tensor that does not exist.
	ErrNotFound = errors.New("not found")
	// ErrScale reports a weight and a block scale that do not belong together: missing, ambiguous, or of the wrong
	// shape or dtype.
	ErrScale = errors.New("weight and scale do not match")
	// ErrDType reports an element type that the operation cannot read.
	ErrDType = errors.New("unsupported dtype")
	// ErrSource reports a tensor that cannot be written: a bad description, or content of another length than
	// described.
	ErrSource = errors.New("tensor cannot be written")
	// ErrExists reports a target folder that already contains a checkpoint; writing there would mix the two.
	ErrExists = errors.New("the folder already holds a checkpoint")
	// ErrClosed reports the use of a checkpoint after Close.
	ErrClosed = errors.New("checkpoint is closed")
)

// FileError is one problem of one file. errors.As finds it; it unwraps to ErrMalformed or ErrNotFound.
type FileError struct {
	File   string // path of the file
	Tensor string // name of the tensor concerned, or empty
	Offset int64  // byte of the file at which the problem is
	Reason string
	Kind   error
}

// Error names the file, the byte offset and, if there is one, the tensor.
func (e *FileError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "weight: %s: byte %d: ", e.File, e.Offset)
	if e.Tensor != "" {
		fmt.Fprintf(&b, "tensor %q: ", clip(e.Tensor))
	}
	b.WriteString(e.Reason)
	return b.String()
}

// Unwrap returns the sentinel error, ErrMalformed or ErrNotFound.
func (e *FileError) Unwrap() error { return e.Kind }

// maxProblems is the maximum number of problems of one file that are described; a file can have one problem per
// tensor.
const maxProblems = 16

// problems collects the errors of one file, so that all of them are reported together.
type problems struct {
	file   string
	errs   []error
	hidden int // number of problems beyond maxProblems
}

// add records one problem at a byte offset of the file.
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

// err joins the problems, or is nil when there are none.
func (p *problems) err() error {
	if p.hidden > 0 {
		return errors.Join(append(p.errs[:len(p.errs):len(p.errs)],
			fmt.Errorf("weight: %s: and %d more problems", p.file, p.hidden))...)
	}
	return errors.Join(p.errs...)
}

// clip shortens a name from a file, so that a hostile file cannot flood a log.
func clip(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "..."
}
