package layout

import "errors"

// ErrKind means that there is no layout with a given name, or that a layout has another use, for example an index
// layout where a layout of latent rows is required.
var ErrKind = errors.New("layout not supported here")
