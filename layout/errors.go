package layout

import "errors"

var (
	// ErrKind is returned for a layout name that does not exist, or for a kind of the wrong sort (an index layout where
	// a main layout is needed, or the reverse).
	ErrKind = errors.New("layout not supported here")
	// ErrLossy is returned by a conversion that would change values when the caller did not allow that.
	ErrLossy = errors.New("conversion loses precision")
	// ErrSize is returned when buffers do not hold the same whole number of rows.
	ErrSize = errors.New("buffer sizes do not match")
	// ErrScale is returned when a per-tensor scale is negative, infinite or NaN.
	ErrScale = errors.New("scale must be positive and finite")
)
