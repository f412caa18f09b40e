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
	Bytes   int64 // size of the content in bytes, without the heads of journal entries
	Created time.Time
	Expires time.Time
	Journal bool // whether the file is a journal: each line begins with the number of a batch's line
}

// Batch describes a batch and its progress. The time of an event that has not happened is zero.
type Batch struct {
	ID       string
	Tenant   string
	Kind     string // interface that created the batch, for the Runner
	Endpoint string // endpoint to which all lines are sent
	Input    string // id of the input file
	Hidden   bool   // whether the input is not an uploaded file
	Metadata map[string]string

	Output string // id of the file with results of lines that succeeded
	Errors string // id of the file with the other results; equal to Output if there is one file

	State   State
	Lines   int
	Created time.Time
	Expires time.Time // time at which lines without a result expire
	Cancel  time.Time // time when cancellation was requested
	Ended   time.Time

	Counts Counts // counts of results; stored when the batch ends
}

// State is the state of a batch.
type State string

// States of a batch. Running changes to Cancelling, Completed or Expired, and Cancelling to Cancelled.
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

// Classes of lines, with the letters that journals use.
const (
	Succeeded   Class = 's'
	Errored     Class = 'e'
	LineCancel  Class = 'c' // the line was cancelled before it ended
	LineExpired Class = 'x' // the line expired before it ended
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

// page returns at most limit objects of a list, newest first, starting after the object with id after. more reports
// whether further objects follow.
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
