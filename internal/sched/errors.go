package sched

import "errors"

var (
	// ErrLimits reports limits with which no sequence can be scheduled.
	ErrLimits = errors.New("sched: bad limits")
	// ErrSequence reports a sequence that cannot be added.
	ErrSequence = errors.New("sched: bad sequence")
)
