package sched

import "errors"

var (
	// ErrLimits reports limits that leave nothing to schedule.
	ErrLimits = errors.New("sched: bad limits")
	// ErrSequence reports a sequence that cannot be added.
	ErrSequence = errors.New("sched: bad sequence")
)
