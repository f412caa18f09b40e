package layout

import "errors"

// ErrKind means that there is no layout with the given name, or that the layout has another use, for example an index
// layout in place of a layout of latent rows.
var ErrKind = errors.New("layout not supported here")
