package layout

import "errors"

// ErrKind is returned for a layout name that does not exist, or for a kind of the wrong sort (an index layout where a
// main layout is needed, or the reverse).
var ErrKind = errors.New("layout not supported here")
