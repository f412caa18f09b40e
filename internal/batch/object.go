package batch

import (
	"slices"
	"time"
)

// File is an uploaded file, or the results of a batch.
type File struct {
	ID      string
	Tenant  string
	Name    string
	Purpose string
	Bytes   int64 // as they are read; entries of a journal take more in the folder
	Created time.Time
	Expires time.Time
	Journal bool // its lines begin with the number of the line of the batch
}

// Batch is a list of requests and its progress. Times of events that have not happened are zero.
type Batch struct {
	ID       string
	Tenant   string
	Kind     string // of interface, for the Runner
	Endpoint string // that all lines are sent to
	Input    string // file
	Hidden   bool   // the input was not uploaded as a file
	Metadata map[string]string

	Output string // file of what succeeded
	Errors string // file of everything else; the same as Output where the interface has one

	State   State
	Lines   int
	Created time.Time
	Expires time.Time // when lines that have not ended are given up
	Cancel  time.Time // when that was asked for
	Ended   time.Time

	Counts Counts // of the journals; written once the batch has ended
}

// State is the state of a batch.
type State string

// The states. Cancelling ends in Cancelled, Running in Completed or Expired.
const (
	Running    State = "running"
	Cancelling State = "cancelling"
	Completed  State = "completed"
	Cancelled  State = "cancelled"
	Expired    State = "expired"
)

// Ended reports whether a batch in this state has ended.
func (s State) Ended() bool { return s != Running && s != Cancelling }

// Class is the outcome of a line.
type Class byte

// The classes, with the letters that journals use.
const (
	Succeeded   Class = 's'
	Errored     Class = 'e'
	LineCancel  Class = 'c' // cancelled before it ended
	LineExpired Class = 'x' // expired before it ended
)

var classes = []Class{Succeeded, Errored, LineCancel, LineExpired}

func (c Class) String() string {
	switch c {
	case Succeeded:
		return "succeeded"
	case Errored:
		return "errored"
	case LineCancel:
		return "cancelled"
	case LineExpired:
		return "expired"
	}
	return "unknown"
}

// Counts counts lines by class.
type Counts struct{ Succeeded, Errored, Cancelled, Expired int }

// Done returns the number of lines that have ended.
func (c *Counts) Done() int { return c.Succeeded + c.Errored + c.Cancelled + c.Expired }

func (c *Counts) add(class Class) {
	switch class {
	case Succeeded:
		c.Succeeded++
	case Errored:
		c.Errored++
	case LineCancel:
		c.Cancelled++
	case LineExpired:
		c.Expired++
	}
}

// page returns the part of a list after the object with the id after, newest first, at most limit objects.
func page[T any](list []T, id func(*T) string, created func(*T) time.Time, after string,
	limit int) (out []T, more bool) {
	slices.SortFunc(list, func(a, b T) int {
		if c := created(&b).Compare(created(&a)); c != 0 {
			return c
		}
		if id(&a) < id(&b) {
			return -1
		}
		return 1
	})
	if after != "" {
		if i := slices.IndexFunc(list, func(x T) bool { return id(&x) == after }); i >= 0 {
			list = list[i+1:]
		}
	}
	return list[:min(limit, len(list))], len(list) > limit
}
