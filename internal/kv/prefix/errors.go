package prefix

import "errors"

// ErrConfig reports sizes that an Index cannot have.
var ErrConfig = errors.New("prefix: bad configuration")

// ErrCorrupt is wrapped by every error of Check.
var ErrCorrupt = errors.New("prefix: index is corrupt")
