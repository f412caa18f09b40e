package synth

import "errors"

// ErrPreset means that no preset has the given name.
var ErrPreset = errors.New("unknown preset")

// ErrOptions is wrapped by every error about Options.
var ErrOptions = errors.New("synth options")
