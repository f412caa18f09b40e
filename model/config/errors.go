package config

import "errors"

// ErrFamily means that the checkpoint's model_type is not one this build can run.
var ErrFamily = errors.New("unsupported model family")
