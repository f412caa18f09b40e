package prefix

import "errors"

// ErrConfig means that a Config is invalid.
var ErrConfig = errors.New("prefix: bad configuration")

// ErrCorrupt is wrapped by all errors of Check.
var ErrCorrupt = errors.New("prefix: index is corrupt")
