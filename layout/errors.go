package layout

import "errors"

// ErrKind is returned for a layout name that does not exist, or for a kind that is not of the expected type, for
// example an index layout if a main layout is expected.
var ErrKind = errors.New("layout not supported here")
